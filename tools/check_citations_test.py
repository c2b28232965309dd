import pathlib
import subprocess

import pytest
from check_citations import find_faults

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture
def tree(tmp_path):
    """A small tree that cites right."""
    for name, text in {
        "docs/spec/model.md": "# Model\n\n## 4 Attention\n\n### 4.1 Formats\n\n## A Vectors\n\n### A.3 Rows\n",
        "docs/spec/engine.md": "# Engine\n\n## 2 Modes\n\n2.1 Marks.\n",
        "docs/spec/decisions.md": "# Decisions\n\n## 2 Promises\n\n## 3 Length\n",
        "docs/kv.md": "See `spec/model.md` and [the engine](spec/engine.md).\n",
        "src/room/part.cc": "// docs/spec/model.md 4, 4.1 and A.3; decisions 2 and 3, docs/spec/engine.md 2.1.\n",
    }.items():
        plant(tmp_path, name, text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def plant(tree, name, text):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_every_citation_of_the_tree_exists():
    assert find_faults(ROOT) == []


def test_a_tree_that_cites_right_has_no_faults(tree):
    assert find_faults(tree) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("// docs/spec/model.md 4, 5.\n", "docs/spec/model.md: no section 5"),
        ("// docs/spec/model.md 4.1, A.4\n", "docs/spec/model.md: no section A.4"),
        ("// docs/spec/model.md 4 and\n// 4.7: a comment that goes on\n", "docs/spec/model.md: no section 4.7"),
        ("// [the model](docs/spec/model.md), section 8.\n", "docs/spec/model.md: no section 8"),
        ("// docs/spec/engine.md 2.2\n", "docs/spec/engine.md: no section 2.2"),
        ("// ties go to the lowest (decisions 2 and 6)\n", "docs/spec/decisions.md: no section 6"),
        ("// as docs/nowhere.md says\n", "docs/nowhere.md: no such document"),
        ("// the index (tests/nowhere/index_test.cc)\n", "tests/nowhere/index_test.cc: no such file"),
        ("// model-v41 4.1\n", "model-v41 is not in the tree; cite docs/spec/"),
    ],
)
def test_a_planted_wrong_citation_is_named_with_file_and_line(tree, text, fault):
    plant(tree, "src/room/other.cc", "int a;\n" + text)
    assert find_faults(tree) == [f"src/room/other.cc:2: {fault}"]


def test_a_heading_that_goes_takes_its_citations_with_it(tree):
    plant(tree, "docs/spec/model.md", "# Model\n\n## 4 Attention\n")
    assert find_faults(tree) == [
        "src/room/part.cc:1: docs/spec/model.md: no section 4.1",
        "src/room/part.cc:1: docs/spec/model.md: no section A.3",
    ]


def test_numbers_in_code_are_no_citations(tree):
    plant(tree, "src/room/code.cc", 'int decisions = 9;  // fine\nf("decision 12");\n')
    assert find_faults(tree) == []
