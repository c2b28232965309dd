"""Keys, exposure and limits of `deepinfer serve`, seen from outside."""

import http.client
import json
import os
import resource
import subprocess

import pytest

import scripted
import served

HELLO = {"reply": "</think>hello", "repeat": True}


def ask(address, headers=(), path="/v1/models"):
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    connection.request("GET", path, headers=dict(headers))
    answer = connection.getresponse()
    answer.read()
    return answer.status


def ended(*options, env=None):
    """Exit code and standard error of a server that must not start."""
    command = [served.BINARY, "serve", "--model", served.MODEL_DIRECTORY, "--port", "0", *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
    return done.returncode, done.stderr


def test_a_key_file_may_end_in_a_newline(tmp_path):
    key = tmp_path / "key"
    key.write_text("sec-ret\r\n")
    with scripted.Server(tmp_path, [HELLO], "--api-key-file", key) as server:
        assert ask(server.address) == 401
        assert ask(server.address, {"Authorization": "Bearer sec-ret"}) == 200
        assert ask(server.address, path="/health") == 200
        arguments = open(f"/proc/{server.process.pid}/cmdline").read()
        assert "sec-ret" not in arguments
        server.process.terminate()
        assert "keys: on" in server.process.stderr.read()


def test_the_variable_is_a_key_and_the_log_says_when_there_is_none(tmp_path, monkeypatch):
    with scripted.Server(tmp_path, [HELLO]) as server:
        assert ask(server.address) == 200
        server.process.terminate()
        log = server.process.stderr.read()
        assert "keys: off" in log
        assert "bodies and whole answers together up to 256 MiB" in log
    monkeypatch.setenv("DEEPINFER_API_KEY", "k1\n")
    with scripted.Server(tmp_path, [HELLO]) as server:
        assert ask(server.address) == 401
        assert ask(server.address, {"x-api-key": "k1"}) == 200


@pytest.mark.parametrize("key", ["", "\n", "a b", "ä"])
def test_a_key_that_nothing_could_match_is_refused(tmp_path, key):
    file = tmp_path / "key"
    file.write_text(key)
    for options, env in ((["--api-key-file", file], {}), (["--api-key", key], {}), ([], {"DEEPINFER_API_KEY": key})):
        code, error = ended(*options, env=env)
        assert code in (1, 2)
        assert "key" in error.lower()


def test_two_keys_are_one_too_many(tmp_path):
    code, error = ended("--api-key", "a", "--api-key-file", tmp_path / "key")
    assert code == 1
    assert "expected one of them" in error


def test_beyond_this_machine_a_key_is_asked_for(tmp_path):
    for host in ("0.0.0.0", "::"):
        code, error = ended("--host", host)
        assert code == 1
        assert "--api-key-file" in error and "--insecure" in error
    with scripted.Server(tmp_path, [HELLO], "--host", "0.0.0.0", "--insecure") as server:
        assert ask(server.address) == 200
        server.process.terminate()
        assert "--insecure" in server.process.stderr.read()
    with scripted.Server(tmp_path, [HELLO], "--host", "0.0.0.0", "--api-key", "k") as server:
        assert ask(server.address) == 401


def test_no_memory_for_one_request_is_not_the_end_of_the_server(tmp_path):
    with scripted.Server(tmp_path, [HELLO], "--max-body", "64M") as server:
        used = 4096 * int(open(f"/proc/{server.process.pid}/statm").read().split()[0])
        limit = used + (200 << 20)
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, limit))
        body = json.dumps({"prompt": "a b " * (10 << 20)})
        for _ in range(3):
            connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=60)
            connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 503, answer.read()
        assert ask(server.address) == 200


def test_sigterm_with_background_responses_ends_at_once(tmp_path):
    slow = {"reply": "</think>" + "word " * 5000, "delay_ms": 50, "repeat": True}
    with scripted.Server(tmp_path, [slow]) as server:
        connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=30)
        for _ in range(3):
            connection.request("POST", "/v1/responses", json.dumps({"model": served.MODEL, "input": "hi", "background": True}))
            assert json.load(connection.getresponse())["status"] in ("queued", "in_progress")
        connection.close()
        server.process.terminate()
        assert server.process.wait(8) == 0
