"""A running `deepinfer-scripted serve` that answers from a list of replies, for tests."""

import json
import re
import subprocess

import served

BINARY = served.BINARY.with_name("deepinfer-scripted")


class Server:
    def __init__(self, directory, replies, *options):
        script = directory / "replies.jsonl"
        script.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        command = [BINARY, "serve", "--model", served.MODEL_DIRECTORY, "--served-model-name", served.MODEL, "--port", "0"]
        self.process = subprocess.Popen(
            [*map(str, command), "--engine", f"scripted:{script}", *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        first = self.process.stdout.readline()
        assert first == f"serving {served.MODEL}\n", first + self.process.stderr.read()
        self.address = re.fullmatch(r"listening on (\S+)\n", self.process.stdout.readline()).group(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(30) == 0
        self.process.stdout.close()
        self.process.stderr.close()
