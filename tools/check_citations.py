#!/usr/bin/env python3
"""Every document, section and file that the tree cites exists.

Checked in every file under version control:
  NAME.md                        the document stands beside the file that cites it, in docs/ or at the named path
  docs/spec/NAME.md 4.5, 5       the sections are headings (or numbered paragraphs) of that document
  decision 6, decisions 2 and 3  the records are in docs/spec/decisions.md
  src/room/file.cc, tests/...    the file exists (in comments and documents; not in code)

Usage: check_citations.py [ROOT]   Prints one line a fault; exits with 1 when there is one.
"""

import pathlib
import re
import subprocess
import sys

SUFFIXES = {".h", ".cc", ".py", ".md", ".mjs", ".cmake", ".txt", ".sh", ".html", ".css"}
FOLDERS = "src|tests|tools|bench|include|docs|web|cmake|models|examples"

GAP = r"(?:\s|//|#|\*|`)+"  # between words of a comment that goes on in the next line
SECTION = r"(?:\d+|[A-Z]\.\d+)(?:\.\d+)*"
SECTIONS = rf"{SECTION}(?:(?:,{GAP}|{GAP}and{GAP}|{GAP}to{GAP}){SECTION}\b(?!\s*%))*"

DOCUMENT = re.compile(rf"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.md)\b(?:(?:\),)?{GAP}(?:sections?{GAP})?(?P<sections>{SECTIONS})\b)?")
RECORDS = re.compile(rf"(?<![\w./])[Dd]ecisions?{GAP}(?P<sections>{SECTIONS})\b")
FILE = re.compile(rf"(?<![\w/.<\"-])((?:{FOLDERS})/[\w./-]*\w\.(?:h|cc|py|mjs|txt|json|jsonl|cmake|svg|png|css|js))\b")
HEADING = re.compile(rf"^(?:#+ ({SECTION})\b|(\d+\.\d+) )", re.MULTILINE)

# The names of documents that are not in the tree; the specification has taken their place.
RETIRED = re.compile(r"model-v41|kv-and-routing|recipe-amendments")
# Made by a build or a run, of another program's directory, or a placeholder.
MADE = re.compile(r"\b(?:NAME|ARCH)|^(?:models/mini/golden/|.*CMakeLists\.txt$)|(?:^|/)(?:CHANGELOG|SKILL|CLAUDE|AGENTS)\.md$")


def tracked_files(root):
    names = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=True,
    ).stdout.decode().split("\0")
    return [root / name for name in names if name and (pathlib.PurePath(name).suffix in SUFFIXES or name == "run")]


def sections_of(document):
    return {a or b for a, b in HEADING.findall(document.read_text())}


def comments_of(path, text):
    """The text of a source file with everything but comments blanked, so that offsets stay."""
    if path.suffix == ".md":
        return text
    mark = "//" if path.suffix in {".h", ".cc", ".mjs"} else "#"
    lines = []
    for line in text.split("\n"):
        at = line.find(mark)
        lines.append(" " * at + line[at:] if at >= 0 else " " * len(line))
    return "\n".join(lines)


class Checker:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.faults = []
        self.known_sections = {}

    def check(self):
        for path in tracked_files(self.root):
            if path.is_file() and not path.name.startswith("check_citations"):
                self.check_file(path)
        return self.faults

    def check_file(self, path):
        text = path.read_text(errors="replace")
        for match in RETIRED.finditer(text):
            self.add(path, text, match, f"{match[0]} is not in the tree; cite docs/spec/")
        for match in DOCUMENT.finditer(text):
            self.check_document(path, text, match)
        for match in RECORDS.finditer(comments_of(path, text)):
            self.check_sections(path, text, match, self.root / "docs/spec/decisions.md")
        for match in FILE.finditer(comments_of(path, text)):
            if not (self.root / match[1]).exists() and not MADE.search(match[1]):
                self.add(path, text, match, f"{match[1]}: no such file")

    def check_document(self, path, text, match):
        name = match[1]
        places = [self.root / name, path.parent / name, self.root / "docs" / name]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            if not MADE.search(name):
                self.add(path, text, match, f"{name}: no such document")
        elif match["sections"] and found.parent == self.root / "docs/spec":
            self.check_sections(path, text, match, found)

    def check_sections(self, path, text, match, document):
        if document not in self.known_sections:
            self.known_sections[document] = sections_of(document) if document.is_file() else set()
        for section in re.findall(SECTION, match["sections"]):
            if section not in self.known_sections[document]:
                self.add(path, text, match, f"{document.relative_to(self.root)}: no section {section}")

    def add(self, path, text, match, what):
        line = text.count("\n", 0, match.start()) + 1
        self.faults.append(f"{path.relative_to(self.root)}:{line}: {what}")


def find_faults(root):
    return Checker(root).check()


if __name__ == "__main__":
    found = find_faults(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    print("\n".join(found) if found else "check_citations: every document, section and file that is cited exists")
    sys.exit(1 if found else 0)
