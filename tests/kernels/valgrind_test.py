"""The AVX2 kernels under valgrind, whose CPUID hides AVX-512 (it could not run that)."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/src/kernels/kernels_test"
# Small cases of every op with odd tails; all of them would take half an hour.
CASES = ["ListsOfProducts", "OddNumbersOfColumns", "RowsMayBeGathered", "EveryWeightCode", "NormRotation", "Engram",
         "HyperConnections", "IndexScores", "Operands", "Int8ActivationsEqual", "FastProductsOfExactCodes"]


@pytest.mark.slow
def test_avx2_kernels_read_and_write_only_their_memory():
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed (./run setup test)")
    listed = subprocess.run([PROGRAM, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    avx2 = re.search(r'/(\d+)  # GetParam\(\) = "avx2"', listed)[1]
    cases = ":".join(f"*{case}*/{avx2}" for case in CASES)
    command = [valgrind, "--error-exitcode=9", "--quiet", PROGRAM, f"--gtest_filter={cases}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    assert f"[  PASSED  ] {len(CASES)} tests." in result.stdout
    assert "SKIPPED" not in result.stdout
