#!/usr/bin/env python3
"""Every text that a client may read in an error, from the source, and a check of the English of all messages.

A text is a string literal of three words or more (adjacent literals are one). Literals that are not messages (prompts, log lines,
markup) are left out by what precedes them.

Usage: error_texts.py             prints the texts for clients, file by file
       error_texts.py --check     prints messages, for anybody, whose wording a reader stumbles over; exits with 1 if there are any
       error_texts.py --write     writes docs/errors.md
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/errors.md"
CLIENTS = ["src/net/*.cc", "src/gateway/*.cc", "src/api/*.cc", "src/api/*.h", "src/grammar/*.cc", "src/sampling/*.cc",
           "src/engine/engine.cc"]
EVERYBODY = ["src/*/*.cc", "src/*/*.h", "src/*/*/*.cc", "src/*/*/*.h", "include/deepinfer/*.h"]
LEFT_OUT = re.compile(r"_test|scripted|fake_|prompt_words|src/gateway/(?:metric|kv_admin|embed)|src/grammar/formats")
NOT_AN_ERROR = re.compile(r"(?:log::\w+\(|CHECK\w*\(|Help\(|counter\(|gauge\(|histogram\(|registry,|key\(|member\(|queue\(|"
                          r"fmt::format\(\s*\"(?:HTTP|#)|static_assert\()[^;{}]*$", re.DOTALL)

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:[^"\\\n]|\\.)*)"|'
    r"'(?:[^'\\\n]|\\.)+'", re.DOTALL)

# What reads as translated, and how it is said. Each pattern is one that was in the tree.
WORDING = [
    (r"(?<![Tt]here )\b(?:is|are|was) no [A-Za-z]", "is not a ..., are not ..."),
    (r"\bthat (?:is|are) none\b", "name what is wrong"),
    (r"\bno whole\b", "not a complete"),
    (r"\bwho(?:m)?ever\b", "name who"),
    (r"\bstands? (?:beside|in front|before|behind|at or before)\b", "is given with, precedes, follows"),
    (r"\bbeside (?:it|them|this|that)\b", "together with it"),
    (r"\bleads? (?:nowhere|out of)\b", "does not exist, is outside"),
    (r"\bof another kind\b", "of the wrong type"),
    (r"\bcan't (?:be had|start again)\b", "say what failed"),
    (r"\bhas no memory\b", "is out of memory"),
    (r"\bis not done yet\b", "is not supported yet"),
    (r"\bit is (?:cut|above|below)\b", "is truncated, is greater than, is less than"),
    (r"\bknown are\b", "expected one of"),
    (r"\bneeds? a last message\b", "the last message must"),
]


def texts_of(path):
    """(place in the file, text) of every literal or row of adjacent literals."""
    source = path.read_text()
    pieces, end = [], 0
    for match in TOKEN.finditer(source):
        text = match["raw"] if match["raw"] is not None else match["text"]
        if text is None:
            continue
        between = source[end:match.start()]
        text = text.replace('\\"', '"').replace("\\\\", "\\")
        if pieces and not re.sub(r"//[^\n]*", "", between).strip():
            pieces[-1][1] += text
        else:
            pieces.append([match.start(), text])
        end = match.end()
    return source, pieces


def is_sentence(text):
    if re.match(r"CREATE |INSERT |SELECT |DELETE |default-src ", text):
        return False
    return len(re.findall(r"(?:^|[\s({`'])[A-Za-z][a-z']*(?=[\s,.:;`')]|$)", text)) >= 3 and "\\n" not in text


def error_texts(patterns, root=ROOT):
    """{file: [text, ...]} in the order of the source."""
    found = {}
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            name = str(path.relative_to(root))
            if LEFT_OUT.search(name):
                continue
            source, pieces = texts_of(path)
            texts = [text for at, text in pieces
                     if is_sentence(text) and not NOT_AN_ERROR.search(source[max(0, at - 300):at])]
            if texts:
                found[name] = list(dict.fromkeys(texts))
    return found


def stumbles(found):
    return [f"{name}: \"{text}\": \"{match[0]}\": {better}"
            for name, texts in found.items() for text in texts
            for pattern, better in WORDING if (match := re.search(pattern, text))]


def document(found):
    lines = ["# Error texts", "",
             "What a client may read in an error, by the part of the program that says it. `{}` is filled in. Made by",
             "`tools/error_texts.py --write`; a test compares it with the source. Statuses and codes:",
             "`docs/spec/recipe.md 11`. Texts in the wording of DeepSeek's or OpenAI's service are theirs on purpose: clients show them.", ""]
    for name, texts in found.items():
        lines += [f"## {name}", ""] + [f"- `{text}`" if "`" not in text else f"- `` {text} ``" for text in texts] + [""]
    return "\n".join(lines)


if __name__ == "__main__":
    found = error_texts(CLIENTS)
    if sys.argv[1:] == ["--write"]:
        DOCUMENT.write_text(document(found))
    elif sys.argv[1:] == ["--check"]:
        faults = stumbles(error_texts(EVERYBODY))
        print("\n".join(faults))
        sys.exit(1 if faults else 0)
    else:
        for name, texts in found.items():
            print(name, *texts, sep="\n  ")
