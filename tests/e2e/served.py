"""A running `deepinfer serve` on the mini model, for tests."""

import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("DEEPINFER_BINARY", ROOT / "build/release/deepinfer"))
MODEL_DIRECTORY = ROOT / "models/mini"
MODEL = "deepinfer-mini"
START_TIMEOUT_S = 60


class Server:
    """Starts the program and waits for its "listening on" line; `stop()` ends it as Ctrl-C does."""

    def __init__(self, *options, binary=BINARY):
        command = [str(binary), "serve", "--model", str(MODEL_DIRECTORY), "--served-model-name", MODEL, "--port", "0"]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        watchdog = threading.Timer(START_TIMEOUT_S, self.process.kill)
        watchdog.start()
        self.port = self._read_port()
        watchdog.cancel()
        self.url = f"http://127.0.0.1:{self.port}"

    def _read_port(self):
        for line in self.process.stdout:
            if match := re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line):
                return int(match.group(1))
        raise AssertionError(f"no 'listening' line; exit code {self.process.wait()}: {self.process.stderr.read()}")

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def wait(self, timeout_s=30):
        return self.process.wait(timeout_s)

    def stop(self):
        ended = self.process.poll()
        assert ended is None, f"the server ended by itself with {ended}: {self.process.stderr.read()}"
        self.interrupt()
        return self.wait()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def request(self, method, path, body=None):
        """Status and body, parsed when it is JSON."""
        connection = self.connect()
        try:
            connection.request(method, path, body=json.dumps(body) if isinstance(body, dict) else body)
            response = connection.getresponse()
            data = response.read()
            is_json = response.headers["Content-Type"].startswith("application/json")
            return response.status, json.loads(data) if is_json else data
        finally:
            connection.close()

    def chat(self, **fields):
        status, body = self.request("POST", "/v1/chat/completions", chat_body(**fields))
        assert status == 200, body
        return body

    def stream(self, **fields):
        """The JSON chunks of a streamed answer, which must end with [DONE]."""
        return list(read_chunks(self.open_stream(**fields)))

    def open_stream(self, **fields):
        connection = self.connect()
        connection.request("POST", "/v1/chat/completions", body=json.dumps(chat_body(stream=True, **fields)))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        return response


class ScriptedServer(Server):
    """Answers from a list of replies (see src/apps/scripted_engine.h) instead of from the model."""

    def __init__(self, replies, folder, *options):
        script = pathlib.Path(folder, "script.jsonl")
        script.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        binary = BINARY.with_name("deepinfer-scripted")
        super().__init__("--engine", f"scripted:{script}", *options, binary=binary)


def call(name, **arguments):
    """A tool call as the model writes it."""
    parameters = "".join(
        f'<｜DSML｜ parameter name="{key}" string="{json.dumps(isinstance(value, str))}">'
        f"{value if isinstance(value, str) else json.dumps(value)}</｜DSML｜ parameter>\n"
        for key, value in arguments.items()
    )
    return f'\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="{name}">\n{parameters}</｜DSML｜ invoke>\n</｜DSML｜ calls>'


def chat_body(prompt="What is 34 + 57?", **fields):
    defaults = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 60}
    return {**defaults, **fields}


def read_chunks(response):
    for line in response:
        if line == b"data: [DONE]\n":
            return
        if line != b"\n":
            yield json.loads(line.removeprefix(b"data: "))
    raise AssertionError("the stream ended without [DONE]")


def read_chunks_of(response):
    """The same for a connection that goes on: reads the rest of the answer too."""
    chunks = list(read_chunks(response))
    assert response.read() == b"\n"
    return chunks


def joined(chunks, key):
    return "".join(chunk["choices"][0]["delta"].get(key) or "" for chunk in chunks)
