"""Holds the anonymous namespaces of a room apart: with DEEPINFER_UNITY its source files are compiled together.

Fails on a constant, function or type that two source files of one room define in their anonymous namespaces (functions may
share a name when their parameters differ), and on a using directive at namespace level. Files that src/ROOM/CMakeLists.txt marks SKIP_UNITY_BUILD_INCLUSION, tests
and the kernels are compiled alone.
Usage: check_names.py [SRC_DIRECTORY]   Prints one line a fault; exits with 1 when there is one.
"""

import collections
import pathlib
import re
import sys

ALONE = {"kernels"}  # rooms that are not joined
TYPE = re.compile(r"(?:struct|class|enum class|enum) (\w+)\b(?!;)")
CONSTANT = re.compile(r"(?:inline |static )?const(?:expr)? [^(=]*?\b(k[A-Z]\w*)(?:\[\w*\])*\s*(?:=|\{)")
FUNCTION = re.compile(r"(?!return\b|using\b|static_assert\b)[\w:<>,*&\[\] ]*[\w>*&] (\w+)\(([^)]*)")
USING = re.compile(r"^using namespace ", re.MULTILINE)
SKIPPED = re.compile(r"set_source_files_properties\(([^)]*?) PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON\)")


def parameter_types(text):
    """`const A& a, int n = 0` without names and defaults."""
    types = (re.sub(r"\s*=.*", "", part).strip() for part in text.split(","))
    return ", ".join(re.sub(r"[\s]+\w+$|(?<=[&*])\w+$", "", part) for part in types if part)


def anonymous_names(text):
    """What the anonymous namespaces of one file define, each a word a reader finds it by."""
    inside = False
    for line in text.splitlines():
        if line == "namespace {":
            inside = True
        elif line.startswith("}  // namespace"):
            inside = False
        elif inside and line[:1].isalpha():
            if found := TYPE.match(line):
                yield found[1]
            elif found := CONSTANT.match(line):
                yield found[1]
            elif found := FUNCTION.match(line):
                yield f"{found[1]}({parameter_types(found[2])})"


def joined_files(room):
    lists = room / "CMakeLists.txt"
    skipped = {name for group in SKIPPED.findall(lists.read_text()) for name in group.split()} if lists.exists() else set()
    files = (file for file in sorted(room.rglob("*.cc")) if not file.stem.endswith("_test"))
    return [file for file in files if str(file.relative_to(room)) not in skipped]


def find_faults(source):
    faults = []
    for room in sorted(path for path in source.iterdir() if path.is_dir() and path.name not in ALONE):
        places = collections.defaultdict(list)
        for file in joined_files(room):
            text = file.read_text()
            if USING.search(text):
                faults.append(f"{file.relative_to(source)}: a using directive holds for the files that are compiled with it")
            for name in dict.fromkeys(anonymous_names(text)):
                places[name].append(file.name)
        faults += [f"{room.name}: {name} is in {' and in '.join(files)}" for name, files in places.items() if len(files) > 1]
    return faults


if __name__ == "__main__":
    found = find_faults(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "src"))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(1 if found else 0)
