"""deepinfer verify with every instruction set that this processor has: the same checks with the same errors."""

import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("DEEPINFER_SHARED", ROOT.parent / "shared"))
SUBJECTS = {"mini": (ROOT / "models/mini", ROOT / "models/mini/golden"),
            "tiny": (SHARED / "golden/tiny", SHARED / "golden")}


def tables(subject):
    """The names in the program's help. The scalar reference takes minutes for the operations at full size; every check of
    theirs compares with it anyway."""
    text = subprocess.run([ROOT / "build/release/deepinfer", "verify", "--help"], capture_output=True, text=True).stdout
    names = re.search(r"--isa.*?auto, ((?:\w+,\s+)+\w+)", text, re.DOTALL)[1].replace(",", " ").split()
    assert "ref" in names
    return [name for name in names if subject == "mini" or name != "ref"]


def verify(subject, isa, numerics="exact"):
    """The report, or None where the processor lacks the table."""
    model, golden = SUBJECTS[subject]
    if not golden.exists():
        assert SHARED in golden.parents and not SHARED.exists(), f"{golden} is missing"
        pytest.skip(f"{golden} is absent: nothing was checked against it")
    ended = subprocess.run([ROOT / "build/release/deepinfer", "verify", "--model", model, "--golden", golden, "--json",
                            "--isa", isa, "--numerics", numerics, "--threads", "2"],
                           capture_output=True, text=True, timeout=3000)
    if "this processor lacks" in ended.stderr:
        return None
    assert ended.stdout, ended.stderr
    return json.loads(ended.stdout)


def errors(report):
    return [(check["name"], check["outcome"], check.get("error")) for check in report["checks"]]


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_table_passes_with_the_same_errors(subject):
    reports = {isa: verify(subject, isa) for isa in tables(subject)}
    ran = {isa: report for isa, report in reports.items() if report is not None}
    assert ran
    first = errors(next(iter(ran.values())))
    for isa, report in ran.items():
        assert report["isa"] == isa and report["summation_order"] == "f32-block32"
        assert report["passed"], [check for check in report["checks"] if check["outcome"] == "FAIL"]
        same = [entry for entry in errors(report) if "ref =" not in entry[0]]
        assert same == [entry for entry in first if "ref =" not in entry[0]], isa


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_fast_mode_passes_its_own_limits_with_equal_errors_of_all_tables(subject):
    reports = [verify(subject, isa, "fast") for isa in tables(subject) if isa != "ref"]
    ran = [report for report in reports if report is not None]
    for report in ran:
        assert report["summation_order"] == "f32-block32 i8-fp4"
        assert report["passed"], [check for check in report["checks"] if check["outcome"] == "FAIL"]
        assert [entry for entry in errors(report) if "ref =" not in entry[0]] == \
            [entry for entry in errors(ran[0]) if "ref =" not in entry[0]]
    exact = verify(subject, "auto")
    assert errors(exact) != errors(ran[-1])
