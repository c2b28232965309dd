"""What .ci/run plans."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def plan():
    return subprocess.run([ROOT / ".ci/run", "--plan"], capture_output=True, text=True, check=True).stdout.strip()


def suites_of(line):
    return re.match(r"ci: today ([a-z0-9 ]+)(?:;|$)", line)[1].split()


def test_every_suite_of_run_is_run_or_said_to_wait():
    known = re.search(r"test \[SUITE\.\.\.\] +(.*?)ends with", (ROOT / "run").read_text(), re.DOTALL)[1]
    known = set(re.findall(r"\b(fast|slow|clients|nightly|\w+san)\b", known))
    line = plan()
    waiting = re.search(r"not today ([a-z0-9 ]+) \(", line)[1].split()
    assert set(suites_of(line)) | set(waiting) == known | {"fuzz"}
    assert suites_of(line) == ["fast", "clients", "slow"]
