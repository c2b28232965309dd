"""./run on wrong use: one line that says what is wrong, before anything is installed or built."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["build", "relase"], "build: unknown preset 'relase'; expected release, debug, asan, tsan, fuzz or aarch64"),
        (["build", "release", "debug"], "build: found 2 presets, expected one"),
        (["test", "fast", "fats"], "test: unknown suite 'fats'; expected fast, slow, clients, nightly, asan, tsan or aarch64"),
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


TOOLS = "bash env awk comm sort wc dirname readlink mkdir tail grep cut sleep cat sed xargs".split()


@pytest.fixture
def machine(tmp_path):
    """Runs `./run setup build` on a machine with these programs alone, each a script, and none of the packages."""
    (tmp_path / "bin").mkdir()
    for name in ("run", "third_party.lock", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "run", tmp_path / "copy")
    (tmp_path / "run").unlink()
    (tmp_path / "copy").rename(tmp_path / "run")
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))

    def setup(**programs):
        for name, script in {"dpkg-query": "true", **programs}.items():
            (tmp_path / "bin" / name.replace("_", "-")).write_text(f"#!/bin/bash\n{script}\n")
            (tmp_path / "bin" / name.replace("_", "-")).chmod(0o755)
        environment = {"PATH": str(tmp_path / "bin"), "http_proxy": "http://proxy:3128"}
        ended = subprocess.run(["./run", "setup", "build"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 1
        return ended.stderr.splitlines()[-1]

    return setup


def test_without_sudo_the_command_for_an_administrator_is_printed(machine):
    line = machine(id="echo 1000", apt_get="true")
    assert line.startswith("run: setup: there is no sudo here; ask an administrator to run: apt-get install ")
    assert " cmake " in line and " libssl-dev " in line and "libgtest-dev" not in line


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct", "run: sudo dpkg --configure -a"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7", "another program is installing"),
        ("Err:1 http://deb.debian.org Could not connect to proxy:3128", "(http_proxy is 'http://proxy:3128'"),
        ("E: Unable to locate package cmake", "last line: E: Unable to locate package cmake"),
    ],
)
def test_a_failed_installation_says_what_helps(machine, said, part):
    line = machine(id="echo 0", apt_get=f'echo "{said}"; exit 100')
    assert line.startswith("run: setup: apt-get update failed: ") and part in line


def test_sudo_is_given_the_proxy(machine):
    line = machine(id="echo 1000", sudo='exec "$@"', apt_get='echo "proxy is $http_proxy"; exit 100')
    assert "last line: proxy is http://proxy:3128" in line
