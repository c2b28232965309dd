"""The commands of the program on the mini model as their users see them: output, errors, exit codes, signals."""

import json
import os
import re
import resource
import signal
import subprocess

import pytest

import served

MODEL = str(served.MODEL_DIRECTORY)
IDS = ["generate", "--model", MODEL, "--ids", "0,17,42", "--temperature", "0"]
SUM = ["generate", "--model", MODEL, "--prompt", "What is 34 + 57?", "--temperature", "0", "--max-tokens", "80"]


def run(*arguments, **options):
    options = {"capture_output": True, "text": True, "timeout": 60, "cwd": served.ROOT, **options}
    return subprocess.run([str(served.BINARY), *arguments], **options)


def assert_one_line(ended, code, part):
    assert ended.returncode == code, ended
    assert part in ended.stderr
    assert ended.stderr.startswith("deepinfer: ") and ended.stderr.count("\n") == 1, ended.stderr


@pytest.fixture
def model(tmp_path):
    """A copy of the model, of links, for a test to break."""
    for file in served.MODEL_DIRECTORY.iterdir():
        (tmp_path / file.name).symlink_to(file)
    return tmp_path


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """The smallest prompt of the golden data alone, which has logits only: quick to verify."""
    prompts = tmp_path_factory.mktemp("golden") / "tiny" / "prompts"
    prompts.mkdir(parents=True)
    smallest = min((served.MODEL_DIRECTORY / "golden/tiny/prompts").iterdir(), key=lambda file: file.stat().st_size)
    (prompts / smallest.name).symlink_to(smallest)
    return str(prompts.parent.parent)


def replace(path, text=None):
    path.unlink()
    if text is None:
        os.mkfifo(path)
    else:
        path.write_text(text)


# ---- generate ----


def test_generate_streams_the_text_that_json_holds():
    streamed = run(*SUM)
    answer = json.loads(run(*SUM, "--json").stdout)
    assert streamed.returncode == 0
    assert streamed.stdout == answer["text"] + "\n"
    assert "91" in answer["text"]
    assert answer["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == len(answer["ids"]) + 1  # the stop token
    assert "prefill" in streamed.stderr and "tokens/s" in streamed.stderr


def test_generate_ends_with_length_after_max_tokens():
    answer = json.loads(run(*IDS, "--max-tokens", "3", "--json").stdout)
    assert len(answer["ids"]) == 3
    assert answer["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 3}


def test_the_text_depends_on_the_seed_and_not_on_the_threads():
    def text(seed, threads):
        options = ["--temperature", "1", "--max-tokens", "24", "--json", "--seed", seed, "--threads", threads]
        return json.loads(run(*IDS[:-2], *options).stdout)["ids"]

    assert text("7", "1") == text("7", "2")
    assert text("7", "1") != text("8", "1")


def test_messages_come_from_a_file_or_a_pipe(tmp_path):
    messages = json.dumps([{"role": "user", "content": "What is 34 + 57?"}])
    (tmp_path / "chat.json").write_text(messages)
    options = ["generate", "--model", MODEL, "--temperature", "0", "--max-tokens", "80", "--messages"]
    expected = run(*SUM).stdout
    assert run(*options, str(tmp_path / "chat.json")).stdout == expected
    assert run(*options, "/dev/stdin", input=messages).stdout == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "the document is empty"),
        ("no JSON", "line 1"),
        ("{}", "messages: found object, expected array"),
        ('[{"role": "king", "content": "x"}]', "messages[0].role"),
        ('[{"role": "user"}]', "messages[0]"),
        ('[{"role": "user", "content": 3}]', "messages[0].content"),
        ('[{"role": "user", "content": "\\ud800"}]', "bad escape"),
        ("[" * 10000, "nested"),
        ("[]", "messages"),
        (" " * (64 * 1024 * 1024 + 1), "found more than 67108864 bytes"),
    ],
)
def test_messages_that_are_none_are_told_what_is_wrong(tmp_path, text, part):
    path = tmp_path / "chat.json"
    path.write_text(text)
    ended = run("generate", "--model", MODEL, "--messages", str(path))
    assert_one_line(ended, 1, part)
    assert str(path) in ended.stderr


def test_a_directory_is_no_messages_file(tmp_path):
    assert_one_line(run("generate", "--model", MODEL, "--messages", str(tmp_path)), 1, "Is a directory")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--ids", "2048"], "prompt_ids: found 2048, expected 0 to 2047"),
        (["--raw", "--prompt", ""], "prompt_ids: found none"),
        (["--prompt", "word " * 9000], "the context holds 8192"),
    ],
)
def test_a_prompt_that_the_model_cannot_take_is_refused(arguments, part):
    assert_one_line(run("generate", "--model", MODEL, *arguments), 1, part)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "subcommand is required"),
        (["swerve"], "unknown command 'swerve'"),
        (["generate", "--prompt", "x"], "--model is required"),
        (["generate", "--model", MODEL], "Exactly 1 option"),
        (["generate", "--model", MODEL, "--prompt", "x", "--ids", "1"], "Exactly 1 option"),
        (["generate", "--model", "", "--prompt", "x"], "--model: found an empty string, expected a path"),
        (["inspect", "--model", ""], "--model: found an empty string, expected a path"),
        (["verify", "--model", MODEL, "--golden", ""], "--golden: found an empty string"),
        (["tokenize", "--tokenizer", ""], "--tokenizer: found an empty string"),
        (["generate", "--model", MODEL, "--ids", ""], "--ids: found '', expected token ids"),
        (["generate", "--model", MODEL, "--ids", "1,x"], "--ids: found 'x', expected token ids"),
        (["generate", "--model", MODEL, "--ids", "-1"], "--ids: found '-1', expected token ids"),
        (["generate", "--model", MODEL, "--ids", "1,,2"], "--ids: found '', expected token ids"),
        (["generate", "--model", MODEL, "--ids", "1,2,"], "(at number 3)"),
        (["generate", "--model", MODEL, "--ids", "99999999999"], "--ids"),
        ([*IDS[:-2], "--temperature", "nan"], "temperature: found nan"),
        ([*IDS[:-2], "--temperature", "-1"], "temperature: found -1"),
        ([*IDS, "--top-p", "0"], "top_p: found 0"),
        ([*IDS, "--max-tokens", "0"], "--max-tokens"),
        ([*IDS, "--max-tokens", "-1"], "--max-tokens"),
        ([*IDS, "--threads", "-1"], "--threads"),
        ([*IDS, "--threads", "9999"], "--threads"),
        ([*IDS, "--seed", "-1"], "--seed: found '-1', expected 0 to 18446744073709551615"),
        ([*IDS, "--seed", "18446744073709551616"], "--seed: found '18446744073709551616', expected 0 to"),
        (["verify", "--model", MODEL, "--golden", MODEL, "--threads", "513"], "not in range 1 to 512"),
        ([*IDS, "--thinking", "maybe"], "--thinking"),
        (["serve", "--model", MODEL, "--threads", "-1"], "--threads: Value -1 not in range 0 to 512"),
        (["serve", "--model", MODEL, "--port", "70000"], "--port"),
        (["serve", "--model", MODEL, "--max-context-tokens", "0"], "not in range 1 to 1099511627776"),
        (["inspect", "--model", MODEL, "--log-level", "loud"], "log level 'loud' is unknown"),
        (["tokenize", "--model", MODEL, "--log-level", "loud"], "log level 'loud' is unknown"),
    ],
)
def test_wrong_usage_has_a_message_and_code_2(arguments, part):
    ended = run(*arguments)
    assert ended.returncode == 2, ended
    assert part in ended.stderr
    assert ended.stdout == ""


def test_ctrl_c_ends_the_answer_where_it_is():
    arguments = [*IDS[:-2], "--temperature", "2", "--max-tokens", "8000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([str(served.BINARY), *arguments], **pipes) as process:
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, notes = process.communicate(timeout=60)
    assert process.returncode == 130, notes
    assert (first + rest).endswith(b"\n")
    assert b"tokens/s" in notes


# ---- All commands ----


@pytest.mark.parametrize("arguments", [["--help"], *([command, "--help"] for command in
                         ("serve", "generate", "inspect", "verify", "tokenize", "detokenize"))])
def test_help_has_examples_and_code_0(arguments):
    ended = run(*arguments)
    assert ended.returncode == 0
    assert ("Examples:" in ended.stdout) == (len(arguments) == 2)


@pytest.mark.parametrize("command", ["generate", "inspect", "verify", "tokenize"])
def test_the_examples_on_the_mini_model_run_as_printed(command):
    lines = run(command, "--help").stdout.splitlines()
    examples = [line for line in lines if "deepinfer " in line and "models/mini" in line and "chat.json" not in line]
    assert examples
    path = f"{served.BINARY.parent}:{os.environ['PATH']}"
    for example in examples:
        ended = subprocess.run(example, shell=True, cwd=served.ROOT, env={**os.environ, "PATH": path}, timeout=120,
                               capture_output=True, text=True)
        assert ended.returncode == 0, (example, ended)
        assert ended.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [*IDS, "--max-tokens", "4"],
        [*IDS, "--max-tokens", "4", "--json"],
        ["inspect", "--model", MODEL],
        ["inspect", "--model", MODEL, "--json"],
        ["verify", "--model", MODEL, "--golden", "GOLDEN"],
        ["verify", "--model", MODEL, "--golden", "GOLDEN", "--json"],
        ["tokenize", "--model", MODEL],
        ["serve", "--model", MODEL, "--port", "0"],
        ["--help"],
    ],
)
def test_a_full_disk_is_an_error(arguments, golden):
    arguments = [golden if argument == "GOLDEN" else argument for argument in arguments]
    with open("/dev/full", "w") as full:
        ended = run(*arguments, input='{"text": "x"}\n', capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1, ended
    assert "standard output cannot be written\n" in ended.stderr


@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json", "model-00002-of-00005.safetensors"])
def test_a_pipe_in_place_of_a_file_is_a_fault_and_not_a_wait(model, file):
    replace(model / file)
    ended = run("inspect", "--model", str(model))
    assert ended.returncode == 1
    assert f"{file}: not a regular file" in ended.stdout


def test_a_pipe_in_place_of_the_tokenizer_is_an_error(model):
    replace(model / "tokenizer.json")
    assert_one_line(run("tokenize", "--model", str(model), input=""), 1, "tokenizer.json: not a regular file")


def test_control_characters_of_a_file_do_not_reach_the_terminal(model):
    index = json.loads((model / "model.safetensors.index.json").read_text())
    index["weight_map"]["embed.weight"] = "a\nb\x1b[31m"
    replace(model / "model.safetensors.index.json", json.dumps(index))
    for command in (["inspect"], ["generate", "--ids", "1"]):
        ended = run(*command, "--model", str(model))
        assert ended.returncode == 1
        assert r"a\x0ab\x1b[31m: not found" in ended.stdout + ended.stderr


@pytest.mark.parametrize("command", ["serve", "generate", "verify", "calibrate", "make-checkpoint", "plan", "inspect"])
def test_help_shows_names_where_a_name_is_expected(command):
    text = run(command, "--help").stdout
    assert "->" not in text and "ENUM" not in text
    if command == "serve":
        assert "TEXT:{recipe,reference}" in text and "TEXT:{prerelease,release}" in text


def test_an_answer_that_the_context_cuts_is_announced():
    ended = run(*SUM[:-1], "100000")
    assert ended.returncode == 0
    assert re.search(r"--max-tokens 100000: the context of 8192 tokens has room for 81\d\d after the prompt", ended.stderr)


def test_an_id_without_a_token_is_an_error():
    ended = run("detokenize", "--model", MODEL, input='{"ids": [3, 2048]}\n{"ids": [3]}\n')
    assert ended.returncode == 1
    first, second = map(json.loads, ended.stdout.splitlines())
    assert first == {"error": "line 1: ids[1]: found 2048, expected 0 to 2047"} and set(second) == {"text"}


def without_last_token(text):
    tokenizer = json.loads(text)
    vocabulary = tokenizer["model"]["vocab"]
    del vocabulary[max(vocabulary, key=vocabulary.get)]
    tokenizer["model"]["merges"].pop()
    return json.dumps(tokenizer)


@pytest.mark.parametrize("damage", [lambda text: "{", lambda text: text[:-5], without_last_token])
def test_inspect_reads_the_tokenizer(model, damage):
    path = model / "tokenizer.json"
    replace(path, damage(path.read_text()))
    ended = run("inspect", "--model", str(model), "--json")
    assert ended.returncode == 1, ended.stdout
    (fault,) = json.loads(ended.stdout)["faults"]
    assert fault.startswith("tokenizer.json: ")


# ---- make-checkpoint ----


def test_a_made_checkpoint_runs_and_has_what_other_engines_ask_for(tmp_path):
    out = tmp_path / "made"
    ended = run("make-checkpoint", "--preset", "tiny", "--layers", "6", "--experts", "4", "--out", str(out),
                "--tokenizer", MODEL + "/tokenizer.json")
    assert ended.returncode == 0, ended
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (out / name).read_bytes() == (served.MODEL_DIRECTORY / name).read_bytes()
    for prompt in (("--ids", "0,17,42"), ("--prompt", "What is 34 + 57?")):
        ended = run("generate", "--model", str(out), *prompt, "--max-tokens", "3", "--json")
        assert ended.returncode == 0 and len(json.loads(ended.stdout)["ids"]) <= 3


# ---- the weights cache ----


def test_packed_weights_are_kept_for_the_next_start_and_change_nothing(tmp_path, golden):
    cache = tmp_path / "made" / "here"
    plain = run(*SUM)
    first = run(*SUM, "--weights-cache", str(cache))
    names = sorted(file.name for file in cache.iterdir())
    second = run(*SUM, "--weights-cache", str(cache))
    assert first.stdout == second.stdout == plain.stdout
    assert "weights cache: wrote" in first.stderr and "weights from the cache" not in first.stderr
    assert "weights from the cache" in second.stderr and "reading" not in second.stderr
    assert len(names) == 2 and names[0].endswith(".weights") and names[1] == "weights.digests"

    (cache / names[0]).write_bytes((cache / names[0]).read_bytes()[:-1])
    third = run("verify", "--model", MODEL, "--golden", golden, "--weights-cache", str(cache))
    assert third.returncode == 0 and "expected" in third.stderr and "weights cache: wrote" in third.stderr
    fourth = run("verify", "--model", MODEL, "--golden", golden, "--weights-cache", str(cache))
    assert fourth.returncode == 0 and fourth.stderr == "" and fourth.stdout == third.stdout


def test_two_checkpoints_share_a_directory(tmp_path, model):
    config = json.loads((model / "config.json").read_text())
    config["text_config"]["routed_scaling_factor"] = 1.4
    replace(model / "config.json", json.dumps(config))
    for path in (MODEL, str(model), MODEL, str(model)):
        ended = run("generate", "--model", path, *IDS[3:], "--max-tokens", "4", "--weights-cache", str(tmp_path / "cache"))
        assert ended.returncode == 0
    assert "weights from the cache" in ended.stderr and "reading" not in ended.stderr
    assert len(list((tmp_path / "cache").glob("*.weights"))) == 2


def test_a_cache_that_cannot_be_had_is_one_warning(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))

    (tmp_path / "file").write_text("mine")
    for path, options, part in [(tmp_path / "file", {}, "Not a directory"), (tmp_path / "full", {"preexec_fn": limit}, "no room for")]:
        ended = run(*IDS, "--max-tokens", "4", "--weights-cache", str(path), **options)
        assert ended.returncode == 0 and ended.stdout
        assert ended.stderr.count(" warning ") == 1 and part in ended.stderr and "going on without it" in ended.stderr
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["weights.digests"]


# ---- verify ----


def test_verify_prints_every_check_and_the_agreement(golden):
    ended = run("verify", "--model", MODEL, "--golden", golden)
    assert ended.returncode == 0, ended
    *checks, summary = ended.stdout.splitlines()
    assert all("<=" in line or "skipped" in line for line in checks)
    assert summary.startswith(f"{len(checks)} checks passed, 0 failed, 0 skipped; top-1 agreement of logits ")


def test_verify_fails_when_the_model_is_another(model):
    config = json.loads((model / "config.json").read_text())
    config["text_config"]["routed_scaling_factor"] = 1.4
    replace(model / "config.json", json.dumps(config))
    ended = run("verify", "--model", str(model), "--golden", MODEL + "/golden", "--json")
    assert ended.returncode == 1
    report = json.loads(ended.stdout)
    assert not report["passed"]
    assert report["counts"]["failed"] == sum(check["outcome"] == "FAIL" for check in report["checks"]) > 0


def test_verify_without_golden_data_is_an_error(tmp_path):
    assert_one_line(run("verify", "--model", MODEL, "--golden", str(tmp_path)), 1, "no golden data")
