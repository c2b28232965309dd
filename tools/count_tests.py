"""Prints the closing line of a test run: test cases passed and failed, summed over result directories.

A directory holds what ./run test leaves: ctest.junit (one entry a program), one NAME.xml a GoogleTest program,
pytest.xml and node.xml. A program that failed without a failed case (it crashed, or ran out of time) counts as one failed case.
Usage: count_tests.py DIRECTORY...   Exits with 1 when anything failed or no case ran.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def count_cases(path):
    """(passed, failed, skipped) of one JUnit file."""
    passed = failed = skipped = 0
    text = re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", path.read_text())  # node writes colours
    for case in ElementTree.fromstring(text.encode()).iter("testcase"):
        if case.get("status") in ("notrun", "disabled"):
            continue
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def count_program(directory, entry):
    """The cases of one ctest entry: those of its own result file, or the entry itself when it left none."""
    program_failed = entry.get("status") == "fail"
    cases = directory / f"{entry.get('name')}.xml"
    if not cases.exists():
        return (0, 1, 0) if program_failed else (1, 0, 0)
    passed, failed, skipped = count_cases(cases)
    return passed, max(failed, int(program_failed)), skipped


def count_directory(directory):
    counts = []
    programs = directory / "ctest.junit"
    if programs.exists():
        counts += [count_program(directory, entry) for entry in ElementTree.parse(programs).iter("testcase")]
    for name in ("pytest.xml", "node.xml"):
        if (directory / name).exists():
            counts.append(count_cases(directory / name))
    return tuple(map(sum, zip((0, 0, 0), *counts)))


def closing_line(directories):
    """The line and whether the run is good."""
    passed, failed, skipped = map(sum, zip((0, 0, 0), *map(count_directory, directories)))
    line = f"{passed} passed, {failed} failed"
    return (f"{line}, {skipped} skipped" if skipped else line), failed == 0 and passed > 0


if __name__ == "__main__":
    line, good = closing_line([pathlib.Path(argument) for argument in sys.argv[1:]])
    print(line)
    sys.exit(0 if good else 1)
