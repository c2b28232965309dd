import pathlib

import pytest
from check_names import find_faults

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"


@pytest.fixture
def room(tmp_path):
    """Writes a source file of one room; `body` stands in its anonymous namespace."""
    (tmp_path / "room").mkdir()

    def write(name, body):
        (tmp_path / "room" / name).write_text(f"namespace deepinfer {{\nnamespace {{\n{body}\n}}  // namespace\n}}\n")
        return find_faults(tmp_path)

    return write


def test_the_tree_keeps_the_names_of_a_room_apart():
    assert find_faults(SOURCE) == []


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("constexpr int64_t kRows = 4;", "kRows"),
        ('constexpr char kExamples[] = "a";', "kExamples"),
        ("constexpr std::array<char, 2> kMagic = {1, 2};", "kMagic"),
        ("struct Row {\n  int a;\n};", "Row"),
        ("enum class Kind { kA };", "Kind"),
        ("Result<Image> parse_image(const JsonRef& block) {\n}", "parse_image(const JsonRef&)"),
        ("std::string* find(const Row& row, int n = 0) {\n}", "find(const Row&, int)"),
    ],
)
def test_a_name_in_two_files_of_a_room_is_named_with_both(room, body, name):
    assert room("one.cc", body) == []
    assert room("two.cc", body) == [f"room: {name} is in one.cc and in two.cc"]


def test_overloads_tests_and_what_is_outside_are_no_fault(room):
    room("one.cc", "void add(int a) {\n}")
    room("two.cc", "void add(double a) {\n}\n}  // namespace\nvoid add(int a) {\n}\nnamespace {")
    assert room("two_test.cc", "void add(int a) {\n}") == []


def test_a_using_directive_is_a_fault(room):
    assert room("one.cc", "}  // namespace\nusing namespace other;\nnamespace {") == [
        "room/one.cc: a using directive holds for the files that are compiled with it"
    ]


def test_a_file_that_is_compiled_alone_may_share_names(room, tmp_path):
    room("one.cc", "constexpr int kRows = 4;")
    lists = "set_source_files_properties(two.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)"
    (tmp_path / "room/CMakeLists.txt").write_text(lists)
    assert room("two.cc", "constexpr int kRows = 4;") == []
