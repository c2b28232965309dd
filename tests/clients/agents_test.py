"""Claude Code, Codex and opencode without a screen, each set up as its documentation says and kept off every other network:
one prompt through, and one file read by a tool. No small model follows prompts of theirs, so the replies are scripted."""

import json
import os
import pathlib
import subprocess

import pytest

import served

PACKAGES = served.ROOT / ".tools/clients/node_modules"
CLAUDE = PACKAGES / "@anthropic-ai/claude-code-linux-x64/claude"
CODEX = PACKAGES / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
OPENCODE = PACKAGES / "opencode-linux-x64-baseline/bin/opencode"
MODEL = "deepseek-flash"  # as in docs/api.md: every server knows it
TIMEOUT_S = 240
SECRET = "pineapple-42"
FINAL = f"</think>The file says {SECRET}."
# The first that fits a prompt is given, so what comes late in a conversation stands first.
REPLIES = [
    {"match": SECRET, "reply": FINAL, "repeat": True},
    {"match": "with the shell", "reply": "</think>" + served.call("exec_command", cmd="cat note.txt"), "repeat": True},
    {"match": "with your Read tool", "reply": "</think>" + served.call("Read", file_path="{folder}/note.txt"), "repeat": True},
    {"match": "with your read tool", "reply": "</think>" + served.call("read", filePath="{folder}/note.txt"), "repeat": True},
    {"reply": "</think>Hello there.", "repeat": True},
]


class Agent:
    """A folder to work in, a home, and a server."""

    def __init__(self, folder):
        self.work, self.home = folder / "work", folder / "home"
        self.work.mkdir()
        self.home.mkdir()
        (self.work / "note.txt").write_text(SECRET + "\n")
        replies = [{**reply, "reply": reply["reply"].replace("{folder}", str(self.work))} for reply in REPLIES]
        self.server = served.ScriptedServer(replies, folder)

    def run(self, *command, **environment):
        """What it wrote to stdout. Anything but our server is behind a proxy that is not there."""
        closed = "http://127.0.0.1:9"
        base = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb", "NO_PROXY": "127.0.0.1"}
        proxies = {name: closed for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
        finished = subprocess.run(
            [str(part) for part in command],
            env={**base, **proxies, **environment},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-2000:]
        return finished.stdout


@pytest.fixture
def agent(tmp_path):
    agent = Agent(tmp_path)
    yield agent
    assert agent.server.stop() == 0


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


# ---- Claude Code: https://code.claude.com/docs, "LLM gateway" ----


def ask_claude(agent, prompt):
    environment = {
        "ANTHROPIC_BASE_URL": agent.server.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    answer = json.loads(agent.run(CLAUDE, "-p", prompt, "--output-format", "json", **environment))
    assert not answer["is_error"], answer
    return answer


def test_claude_code_gets_an_answer(agent):
    assert ask_claude(agent, "Say hello.")["result"] == "Hello there."


def test_claude_code_reads_a_file_by_its_tool(agent):
    answer = ask_claude(agent, "Read note.txt with your Read tool.")
    assert answer["result"] == f"The file says {SECRET}."
    assert answer["num_turns"] == 2


# ---- Codex: https://developers.openai.com/codex, "Custom model providers" ----


def ask_codex(agent, prompt):
    settings = agent.home / ".codex"
    settings.mkdir()
    (settings / "config.toml").write_text(f"""
model = "{MODEL}"
model_provider = "deepinfer"
[model_providers.deepinfer]
name = "deepinfer"
base_url = "{agent.server.url}/v1"
wire_api = "responses"
""")
    options = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    events = json_lines(agent.run(CODEX, *options, prompt))
    assert events[-1]["type"] == "turn.completed", events[-1]
    return [event["item"] for event in events if event["type"] == "item.completed"]


def test_codex_gets_an_answer(agent):
    assert ask_codex(agent, "Say hello.")[-1]["text"] == "Hello there."


def test_codex_reads_a_file_with_the_shell(agent):
    items = ask_codex(agent, "Read note.txt with the shell.")
    assert items[-1]["text"] == f"The file says {SECRET}."
    [command] = [item for item in items if item["type"] == "command_execution"]
    assert (command["aggregated_output"].strip(), command["exit_code"]) == (SECRET, 0)


# ---- opencode: https://opencode.ai/docs, "Custom provider" ----


def ask_opencode(agent, prompt):
    options = {"baseURL": agent.server.url + "/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {MODEL: {"tool_call": True}}}
    settings = {"provider": {"deepinfer": provider}, "autoupdate": False, "share": "disabled"}
    pathlib.Path(agent.work, "opencode.json").write_text(json.dumps(settings))
    command = [OPENCODE, "run", prompt, "--model", f"deepinfer/{MODEL}", "--format", "json"]
    return json_lines(agent.run(*command, OPENCODE_DISABLE_MODELS_FETCH="1"))


def texts_of(events):
    return [event["part"]["text"] for event in events if event["type"] == "text"]


def test_opencode_gets_an_answer(agent):
    assert texts_of(ask_opencode(agent, "Say hello.")) == ["Hello there."]


def test_opencode_reads_a_file_by_its_tool(agent):
    events = ask_opencode(agent, "Read note.txt with your read tool.")
    assert texts_of(events)[-1] == f"The file says {SECRET}."
    [tool] = [event["part"] for event in events if event["type"] == "tool_use"]
    assert (tool["tool"], tool["state"]["status"]) == ("read", "completed")
