"""The anthropic package: Messages, tools, thinking, token counts."""

import anthropic
import pytest

import served
from conftest import WEATHER

TOOL = {"name": "get_weather", "description": "Weather of a city", "input_schema": WEATHER}


def client_of(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def ask(text, **fields):
    return {"model": served.MODEL, "max_tokens": 200, "messages": [{"role": "user", "content": text}], **fields}


def test_a_message_whole_and_streamed(mini):
    client = client_of(mini)
    request = ask("What is 34 + 57?", extra_body={"temperature": 0})
    whole = client.messages.create(**request)
    assert "91" in text_of(whole)
    assert whole.stop_reason == "end_turn"
    assert whole.usage.output_tokens > 0
    with client.messages.stream(**request) as stream:
        streamed = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert streamed == text_of(whole) == text_of(final)
    assert final.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("streams", [False, True])
def test_a_tool_is_called_and_its_result_read(scripted, streams):
    client = client_of(scripted)

    def answer_to(request):
        if not streams:
            return client.messages.create(**request)
        with client.messages.stream(**request) as stream:
            return stream.get_final_message()

    request = ask("Weather in Paris?", tools=[TOOL], thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000)
    first = answer_to(request)
    assert first.stop_reason == "tool_use"
    thinking = next(block for block in first.content if block.type == "thinking")
    assert (thinking.thinking, bool(thinking.signature)) == ("I call it.", True)
    use = next(block for block in first.content if block.type == "tool_use")
    assert (use.name, use.input) == ("get_weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny, 21 C"}
    request["messages"] += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = answer_to(request)
    assert text_of(second) == "It is sunny in Paris."
    assert second.stop_reason == "end_turn"


def test_the_tool_runner_of_the_sdk_reaches_the_answer(scripted):
    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Weather of a city."""
        return "sunny, 21 C" if city == "Paris" else "unknown"

    final = client_of(scripted).beta.messages.tool_runner(**ask("Weather in Paris?"), tools=[get_weather]).until_done()
    assert text_of(final) == "It is sunny in Paris."


def test_tokens_are_counted_without_an_answer(mini):
    client = client_of(mini)
    request = {key: value for key, value in ask("What is 34 + 57?").items() if key != "max_tokens"}
    count = client.messages.count_tokens(**request).input_tokens
    usage = client.messages.create(**ask("What is 34 + 57?")).usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens


def test_a_stop_sequence_is_reported(scripted):
    message = client_of(scripted).messages.create(**ask("Say hello", stop_sequences=["there"]))
    assert text_of(message).strip() == "Hello"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "there")


def test_names_of_claude_are_served(mini):
    assert client_of(mini).messages.create(**ask("hi", model="claude-opus-5")).stop_reason


def test_errors_have_the_types_of_the_sdk(mini):
    client = client_of(mini)
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(**ask("hi", model="no-such-model"))
    assert unknown.value.body["type"] == "error"
    assert unknown.value.request_id
    with pytest.raises(anthropic.BadRequestError) as wrong:
        client.messages.create(**ask("hi", extra_body={"temperature": "hot"}))
    assert "temperature" in wrong.value.message


def test_models_are_listed(mini):
    client = client_of(mini)
    [listed] = client.models.list().data
    assert (listed.id, listed.type, listed.display_name) == (served.MODEL, "model", served.MODEL)
    assert client.models.retrieve(served.MODEL).created_at == listed.created_at
