"""./run on wrong use: one line that says what is wrong, before anything is installed or built."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["build", "relase"], "build: unknown preset 'relase'; expected release, debug, asan, tsan, fuzz or aarch64"),
        (["build", "release", "debug"], "build: found 2 presets, expected one"),
        (["test", "fast", "fats"], "test: unknown suite 'fats'; expected fast, slow, clients, asan, tsan or aarch64"),
        (["setup", "everything"], "setup: unknown group 'everything'; expected build, dev, test, clients, fuzz, aarch64 or bench"),
        (["bench", "nothing"], "bench: unknown name 'nothing'; expected one of "),
        (["fuzz", "nothing"], "fuzz: unknown name 'nothing'; expected one of "),
        (["fuzz", "json", "long"], "fuzz: found 'long' seconds, expected a number from 1"),
        (["fuzz", "json", "0"], "fuzz: found '0' seconds, expected a number from 1"),
    ],
)
def test_wrong_use_is_told_at_once(arguments, line):
    ended = subprocess.run(["./run", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"run: {line}")
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_an_unknown_command_shows_the_commands():
    ended = subprocess.run(["./run", "srve"], cwd=ROOT, capture_output=True, text=True, timeout=10)
    assert ended.returncode == 1
    assert ended.stderr.endswith("run: unknown command 'srve'\n")
    assert "serve [ARGS]" in ended.stderr
