"""The openai package: Chat Completions, Responses, Completions."""

import json

import openai
import pytest

import served
from conftest import WEATHER

SUM = "What is 34 + 57?"
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
RESPONSES_TOOL = {"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


# ---- Chat Completions ----


def test_chat_answers_whole_and_streamed(mini):
    ask = {"model": served.MODEL, "messages": [{"role": "user", "content": SUM}], "temperature": 0, "max_tokens": 80}
    client = client_of(mini)
    whole = client.chat.completions.create(**ask)
    assert "91" in whole.choices[0].message.content
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    with client.chat.completions.stream(**ask, stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.usage.completion_tokens == whole.usage.completion_tokens


def test_chat_calls_a_tool_and_reads_its_result(scripted):
    client = client_of(scripted)
    messages = [{"role": "user", "content": "Weather in Paris?"}]
    first = client.chat.completions.create(model=served.MODEL, messages=messages, tools=[CHAT_TOOL])
    assert first.choices[0].finish_reason == "tool_calls"
    call = first.choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 C"}]
    with client.chat.completions.stream(model=served.MODEL, messages=messages, tools=[CHAT_TOOL]) as stream:
        second = stream.get_final_completion()
    assert second.choices[0].message.content == "It is sunny in Paris."
    assert second.choices[0].finish_reason == "stop"


def test_a_streamed_call_is_put_together_by_the_sdk(scripted):
    messages = [{"role": "user", "content": "Weather in Paris?"}]
    ask = {"model": served.MODEL, "messages": messages, "tools": [CHAT_TOOL]}
    with client_of(scripted).chat.completions.stream(**ask) as stream:
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_several_answers_and_log_probabilities(mini):
    messages = [{"role": "user", "content": SUM}]
    answer = client_of(mini).chat.completions.create(
        model=served.MODEL, messages=messages, n=2, logprobs=True, top_logprobs=3, max_tokens=8, seed=1
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    for entry in answer.choices[0].logprobs.content or []:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3


def test_errors_have_the_types_of_the_sdk(mini):
    client = client_of(mini)
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="no-such-model", messages=messages)
    assert unknown.value.request_id
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=served.MODEL, messages=messages, temperature=9)
    assert "temperature" in wrong.value.message
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=served.MODEL, messages=[{"role": "nobody", "content": "x"}])


def test_models_are_listed(mini):
    client = client_of(mini)
    assert [model.id for model in client.models.list()] == [served.MODEL]
    assert client.models.retrieve(served.MODEL).id == served.MODEL


# ---- Responses ----


def test_a_response_whole_and_streamed(mini):
    client = client_of(mini)
    ask = {"model": served.MODEL, "input": SUM, "temperature": 0, "max_output_tokens": 80}
    whole = client.responses.create(**ask)
    assert whole.status == "completed"
    assert "91" in whole.output_text
    with client.responses.stream(**ask) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == sorted(numbers)
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"


def test_a_response_calls_a_tool_and_goes_on_from_it(scripted):
    client = client_of(scripted)
    ask = {"model": served.MODEL, "tools": [RESPONSES_TOOL]}
    first = client.responses.create(input="Weather in Paris?", **ask)
    call = next(item for item in first.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 21 C"}
    second = client.responses.create(input=[result], previous_response_id=first.id, **ask)
    assert second.output_text == "It is sunny in Paris."
    assert second.previous_response_id == first.id


def test_stored_responses_are_read_listed_and_deleted(scripted):
    client = client_of(scripted)
    made = client.responses.create(model=served.MODEL, input="Say hello")
    assert client.responses.retrieve(made.id).output_text == "Hello there."
    items = client.responses.input_items.list(made.id).data
    assert [item.role for item in items] == ["user"]
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_reasoning_comes_back_encrypted_when_nothing_is_stored(scripted):
    client = client_of(scripted)
    ask = {"model": served.MODEL, "store": False, "include": ["reasoning.encrypted_content"], "tools": [RESPONSES_TOOL]}
    first = client.responses.create(input="Weather in Paris?", **ask)
    assert next(item for item in first.output if item.type == "reasoning").encrypted_content
    call = next(item for item in first.output if item.type == "function_call")
    history = [{"role": "user", "content": "Weather in Paris?"}]
    history += [item.model_dump(exclude_none=True) for item in first.output]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 21 C"})
    assert client.responses.create(input=history, **ask).output_text == "It is sunny in Paris."


# ---- Completions ----


def test_a_completion_whole_and_streamed(mini):
    client = client_of(mini)
    ask = {"model": served.MODEL, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    whole = client.completions.create(**ask)
    assert whole.choices[0].text
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(**ask, stream=True) if chunk.choices)
    assert streamed == whole.choices[0].text
    with pytest.raises(openai.BadRequestError, match="suffix"):  # the mini has no tokens for filling in
        client.completions.create(**ask, suffix=" and it lies on the Seine.")
