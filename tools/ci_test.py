"""What .ci/run plans for a day."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def plan(*arguments, day=0):
    return subprocess.run([ROOT / ".ci/run", "--plan", *arguments], env={**os.environ, "CI_DAY": str(day)},
                          capture_output=True, text=True, check=True).stdout.strip()


def suites_of(line):
    return re.match(r"ci: today ([a-z0-9 ]+)(?:;|$)", line)[1].split()


def test_every_suite_of_run_is_run_on_one_of_two_days():
    known = re.search(r"test \[SUITE\.\.\.\] +(.*?)ends with", (ROOT / "run").read_text(), re.DOTALL)[1]
    known = set(re.findall(r"\b(fast|slow|clients|asan|tsan|\w+san)\b", known))
    assert set(suites_of(plan(day=0))) | set(suites_of(plan(day=1))) == known


def test_a_day_says_what_waits_for_another():
    for day, today, other in ((20000, "asan", "tsan"), (20001, "tsan", "asan")):
        line = plan(day=day)
        assert suites_of(line) == ["fast", "clients", "slow", today]
        assert f"on another day {other} " in line


def test_today_is_a_day_of_the_calendar():
    by_clock = subprocess.run([ROOT / ".ci/run", "--plan"], env={k: v for k, v in os.environ.items() if k != "CI_DAY"},
                              capture_output=True, text=True, check=True).stdout
    assert suites_of(by_clock)[3] in ("asan", "tsan")
