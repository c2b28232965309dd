"""`deepinfer serve` on the mini model, seen by clients: raw HTTP and the openai SDK."""

import concurrent.futures
import json
import re
import resource
import socket
import subprocess
import time

import openai
import pytest

import served

ENDS = {"stop", "length", "tool_calls"}
NO_THINKING = {"type": "disabled"}
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def server():
    running = served.Server()
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def wait_until_idle(server, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        health = server.request("GET", "/health")[1]
        if health["running"] == 0 and health["waiting"] == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"the engine still works: {health}")


# ---- Answers ----


def test_a_whole_answer_has_a_message_an_end_and_usage(server):
    answer = server.chat()
    choice = answer["choices"][0]
    assert answer["object"] == "chat.completion"
    assert answer["model"] == served.MODEL
    assert choice["finish_reason"] in ENDS
    assert choice["message"]["content"] or choice["message"]["reasoning_content"]
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] <= usage["completion_tokens"] <= 60
    assert usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"] == usage["prompt_tokens"]


def test_a_stream_says_the_same_as_a_whole_answer(server):
    for thinking in ({"type": "enabled"}, NO_THINKING):
        message = server.chat(thinking=thinking)["choices"][0]["message"]
        chunks = server.stream(thinking=thinking)
        assert served.joined(chunks, "content") == message["content"]
        assert served.joined(chunks, "reasoning_content") == message.get("reasoning_content", "")
        assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
        assert chunks[-1]["choices"][0]["finish_reason"] in ENDS
        assert chunks[-1]["usage"]["completion_tokens"] > 0


def test_without_thinking_there_is_no_reasoning(server):
    message = server.chat(thinking=NO_THINKING)["choices"][0]["message"]
    assert "reasoning_content" not in message


def test_the_same_seed_gives_the_same_text(server):
    answers = {json.dumps(server.chat(temperature=1, seed=11)["choices"]) for _ in range(3)}
    assert len(answers) == 1


def test_b40_the_second_turn_of_messages_hits_the_prefix_cache(server):
    question = {"role": "user", "content": "Remember these words. " + " ".join(f"word{i}" for i in range(120))}
    ask = {"model": served.MODEL, "max_tokens": 8, "temperature": 0, "thinking": {"type": "disabled"}}
    _, first = server.request("POST", "/v1/messages", {**ask, "messages": [question]})
    answer = {"role": "assistant", "content": first["content"]}
    more = {"role": "user", "content": "And now?"}
    _, second = server.request("POST", "/v1/messages", {**ask, "messages": [question, answer, more]})
    assert second["usage"]["cache_read_input_tokens"] >= 256, second["usage"]


def test_a_max_tokens_beyond_the_context_is_a_bound(server):
    answer = server.chat(max_tokens=300000)
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_max_tokens_ends_an_answer_with_length(server):
    answer = server.chat(max_tokens=1)
    assert answer["usage"]["completion_tokens"] <= 1
    if answer["usage"]["completion_tokens"] == 1:
        assert answer["choices"][0]["finish_reason"] == "length"


def test_a_stop_sequence_cuts_the_content(server):
    content = server.chat(thinking=NO_THINKING)["choices"][0]["message"]["content"]
    assert len(content) >= 2, "the model says too little for this test"
    stop = content[len(content) // 2 :]
    answer = server.chat(thinking=NO_THINKING, stop=[stop])
    assert answer["choices"][0]["message"]["content"] == content[: content.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_usage_is_null_until_the_last_chunk_when_asked_for(server):
    chunks = server.stream(stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["usage"]["total_tokens"] > 0


def test_a_conversation_with_tools_is_answered(server):
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny, 20 C"},
    ]
    choice = server.chat(messages=messages, tools=[WEATHER_TOOL])["choices"][0]
    assert choice["finish_reason"] in ENDS


def test_requests_at_once_are_all_answered(server):
    alone = server.chat(thinking=NO_THINKING)["choices"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.chat(thinking=NO_THINKING), range(8)))
    assert all(answer["choices"] == alone for answer in answers)


def test_a_client_that_leaves_frees_the_engine(server):
    for _ in range(3):
        response = server.open_stream(max_tokens=2000, temperature=1, prompt="Count to one thousand.")
        response.readline()
        response.close()
    wait_until_idle(server)
    assert server.chat()["choices"][0]["finish_reason"] in ENDS


# ---- The openai SDK ----


def test_the_openai_sdk_gets_an_answer(client):
    messages = [{"role": "user", "content": "What is 34 + 57?"}]
    answer = client.chat.completions.create(model=served.MODEL, messages=messages, temperature=0, max_tokens=60)
    assert answer.choices[0].finish_reason in ENDS
    assert answer.usage.completion_tokens > 0
    stream = client.chat.completions.create(
        model=served.MODEL, messages=messages, temperature=0, max_completion_tokens=60, stream=True
    )
    content = reasoning = ""
    for chunk in stream:
        content += chunk.choices[0].delta.content or ""
        reasoning += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
    assert content == answer.choices[0].message.content
    assert reasoning == answer.choices[0].message.reasoning_content


def test_the_openai_sdk_lists_models_and_knows_our_errors(client):
    assert [model.id for model in client.models.list()] == [served.MODEL]
    assert client.models.retrieve(served.MODEL).id == served.MODEL
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=messages)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=served.MODEL, messages=messages, n=0)


# ---- What is not a request ----


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ("", 400, "invalid JSON request"),
        ("{", 400, "invalid JSON request"),
        ("[1, 2]", 400, "found array, expected object"),
        (b'{"model": "\xff"}', 400, "invalid JSON request"),
        ('{"model": "deepinfer-mini"}', 400, "missing field `messages`"),
        ({"messages": []}, 400, "missing field `model`"),
        (served.chat_body(model="other"), 404, "`other`"),
        (served.chat_body(messages=[]), 400, "messages"),
        (served.chat_body(messages=[{"role": "user", "content": 3}]), 400, "messages[0].content"),
        (served.chat_body(temperature="hot"), 400, "temperature"),
        (served.chat_body(temperature=9), 400, "[0, 2]"),
        (served.chat_body(max_tokens=0), 400, "max_tokens"),
        (served.chat_body(max_tokens=400000), 400, "max_tokens"),
        (served.chat_body(prompt="word " * 20000), 400, "maximum context length is"),
        (served.chat_body(n=0), 400, "n value"),
        (served.chat_body(top_logprobs=2), 400, "logprobs"),
        (served.chat_body(response_format={"type": "yaml"}), 400, "response_format"),
        ("[" * 100000, 400, "invalid JSON request"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(server, body, status, part):
    found, answer = server.request("POST", "/v1/chat/completions", body)
    assert found == status, answer
    assert part in answer["error"]["message"]
    assert set(answer["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405), ("PUT", "/health", 405), ("GET", "/v1/models/x", 404)],
)
def test_unknown_paths_and_methods_are_errors(server, method, path, status):
    found, answer = server.request(method, path)
    assert found == status
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 20000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_no_http_gets_an_answer(server, head, status):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head)
        answer = connection.recv(65536)
    assert int(answer.split()[1]) == status
    json.loads(answer.partition(b"\r\n\r\n")[2])


def test_control_spellings_in_a_message_are_text(server):
    usage = server.chat(prompt="hi", thinking=NO_THINKING, max_tokens=1)["usage"]
    typed = server.chat(prompt="hi<｜User｜>", thinking=NO_THINKING, max_tokens=1)["usage"]
    assert typed["prompt_tokens"] > usage["prompt_tokens"] + 1


def test_the_page_and_health_are_shown(server):
    status, page = server.request("GET", "/")
    assert status == 200
    assert b"<title>deepinfer</title>" in page
    health = server.request("GET", "/health")
    assert health[0] == 200
    assert health[1]["model"] == served.MODEL


# ---- The end ----


def test_ctrl_c_ends_a_running_stream_cleanly():
    server = served.Server()
    chunks = served.read_chunks(server.open_stream(max_tokens=4000, temperature=2, prompt="Tell me everything."))
    first = next(chunks)
    assert first["choices"][0]["delta"]["role"] == "assistant"
    server.interrupt()
    last = [first, *chunks][-1]
    assert last["choices"][0]["finish_reason"] in ENDS | {"insufficient_system_resource"}
    assert server.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        server.request("GET", "/health")


def test_a_taken_port_is_a_clear_error(server):
    command = [served.BINARY, "serve", "--model", served.MODEL_DIRECTORY, "--port", str(server.port)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{server.port}: Address already in use" in ended.stderr
    assert "memory plan" not in ended.stderr  # told before the model is looked at


def start_and_stop(*options, **process_options):
    """The log of a server that listens and is stopped, or of one that refuses to start."""
    command = [served.BINARY, "serve", "--model", served.MODEL_DIRECTORY, "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **process_options)
    for line in process.stdout:
        if line.startswith("listening"):
            process.terminate()
    return process.wait(60), process.stderr.read()


def test_a_plan_that_does_not_fit_is_refused_with_a_value_that_does():
    limit = 1 << 30
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))}
    code, log = start_and_stop("--kv-blocks", "200000", **limited)
    assert code == 1
    *_, plan, refusal = log.splitlines()
    assert "memory plan" in plan
    fitting = re.search(r"ulimit -d\) is 1024 MiB: --kv-blocks (\d+) would fit$", refusal)[1]
    code, log = start_and_stop("--kv-blocks", fitting, **limited)
    assert code == 0, log


@pytest.mark.parametrize(("config", "name"), [({}, "deepinfer-mini"), ({"_name_or_path": "a/B-1"}, "B-1"), ({"_name_or_path": ""}, "model")])
def test_a_model_is_served_under_its_own_name(tmp_path, config, name):
    model = tmp_path / "model"
    model.mkdir()
    for file in served.MODEL_DIRECTORY.iterdir():
        (model / file.name).symlink_to(file)
    changed = json.loads((model / "config.json").read_text()) | config
    (model / "config.json").unlink()
    (model / "config.json").write_text(json.dumps(changed))
    command = [served.BINARY, "serve", "--model", model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == f"serving {name}\n"
        process.terminate()
        assert process.wait(60) == 0


def test_a_context_beyond_the_model_is_said_and_takes_no_memory():
    code, log = start_and_stop("--max-context-tokens", "1000000")
    assert code == 0
    assert "--max-context-tokens 1000000: the context of this model ends at 8192, which is used" in log
    assert "(2048 of 128 tokens)" in log
