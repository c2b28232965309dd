"""The ways to reach the server, and the protocols with real clients on an engine that answers from a file."""

import gzip
import http.client
import json
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

import openai
import pytest

import scripted
import served

HELLO = {"reply": "hm</think>hello", "repeat": True}
CHAT = {"model": served.MODEL, "messages": [{"role": "user", "content": "hi"}]}


def post(url, body, headers=(), context=None):
    request = urllib.request.Request(url, json.dumps(body).encode(), dict(headers))
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        return json.load(answer)


def content(answer):
    return answer["choices"][0]["message"]["content"]


def test_tls_with_a_given_certificate(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    options = ["--tls-certificate", certificate, "--tls-key", key]
    with scripted.Server(tmp_path, [HELLO, {**HELLO, "delay_ms": 1}], *options) as server:
        assert server.address.startswith("https://")
        trusted = ssl.create_default_context(cafile=certificate)
        assert content(post(server.address + "/v1/chat/completions", CHAT, context=trusted)) == "hello"
        connection = http.client.HTTPSConnection(server.address.removeprefix("https://"), context=trusted)
        for _ in range(2):  # one connection, a stream each
            connection.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True}))
            chunks = list(served.read_chunks_of(connection.getresponse()))
            assert served.joined(chunks, "content") == "hello"
        with socket.create_connection(("127.0.0.1", connection.port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert plain.recv(1000).startswith(b"HTTP/1.1 400 ")
        assert content(post(server.address + "/v1/chat/completions", CHAT, context=trusted)) == "hello"


def test_a_unix_socket(tmp_path):
    path = tmp_path / "socket"
    with scripted.Server(tmp_path, [HELLO], "--host", "", "--unix-socket", path) as server:
        assert server.address == str(path)
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("POST", "/v1/chat/completions", json.dumps(CHAT))
        assert content(json.load(connection.getresponse())) == "hello"
    assert not path.exists()


def test_a_key_and_a_compressed_body(tmp_path):
    with scripted.Server(tmp_path, [HELLO], "--api-key", "secret") as server:
        url = server.address + "/v1/chat/completions"
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(url, CHAT)
        assert refused.value.code == 401
        assert content(post(url, CHAT, {"Authorization": "Bearer secret"})) == "hello"
        body = gzip.compress(json.dumps(CHAT).encode())
        request = urllib.request.Request(url, body, {"x-api-key": "secret", "Content-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert content(json.load(answer)) == "hello"


def test_stored_responses_outlive_the_server(tmp_path):
    store = tmp_path / "responses.sqlite"
    replies = [{"reply": "</think>first"}, {"match": "first", "reply": "</think>second"}]
    with scripted.Server(tmp_path, replies[:1], "--response-store", store) as server:
        client = openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)
        first = client.responses.create(model=served.MODEL, input="one")
        assert first.output_text == "first"
    with scripted.Server(tmp_path, replies[1:], "--response-store", store) as server:
        client = openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)
        assert client.responses.retrieve(first.id).output_text == "first"
        second = client.responses.create(model=served.MODEL, input="two", previous_response_id=first.id)
        assert second.output_text == "second"
        assert [item.type for item in client.responses.input_items.list(first.id)] == ["message"]
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)


def test_the_openai_sdk_streams_a_response_with_a_call(tmp_path):
    call = (
        "hm</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"add\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">1"
        "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"
    )
    tool = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}
    with scripted.Server(tmp_path, [{"reply": call, "delay_ms": 1}]) as server:
        client = openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)
        with client.responses.stream(model=served.MODEL, input="1 + 2?", tools=[tool]) as stream:
            types = [event.type for event in stream]
            final = stream.get_final_response()
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"
    assert [item.type for item in final.output] == ["reasoning", "function_call"]
    assert json.loads(final.output[1].arguments) == {"a": 1}


def test_the_released_program_has_no_script():
    command = [served.BINARY, "serve", "--model", served.MODEL_DIRECTORY, "--engine", "scripted:x"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "deepinfer-scripted" in ended.stderr
