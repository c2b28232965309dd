import pytest
from error_texts import CLIENTS, DOCUMENT, EVERYBODY, document, error_texts, stumbles


def plant(root, text):
    (root / "src/net").mkdir(parents=True)
    (root / "src/net/server.cc").write_text(text)
    return error_texts(["src/net/*.cc"], root)


def test_messages_are_in_plain_english():
    assert stumbles(error_texts(EVERYBODY)) == []


def test_the_list_of_errors_for_clients_is_that_of_the_source():
    assert DOCUMENT.read_text() == document(error_texts(CLIENTS)), "run tools/error_texts.py --write"


def test_the_rooms_that_clients_talk_to_have_texts():
    found = error_texts(CLIENTS)
    assert sum(map(len, found.values())) > 200
    for room in ("net", "gateway", "api", "grammar", "sampling", "engine"):
        assert any(name.startswith(f"src/{room}/") for name in found), room


def test_adjacent_literals_are_one_text_and_comments_none(tmp_path):
    found = plant(tmp_path, 'return Error(Code::kIo, "{}: not a "  // "a comment is not a text"\n    "regular file", path);\n')
    assert found == {"src/net/server.cc": ["{}: not a regular file"]}


def test_log_lines_and_short_words_are_left_out(tmp_path):
    assert plant(tmp_path, 'log::warn("this is a line of the log");\nif (name == "top_p") f("two words");\n') == {}


@pytest.mark.parametrize("text", ["This is no HTTP/1.1 request: {}.", "it is cut somewhere else", "bytes that are no ASCII here"])
def test_planted_wording_is_named_with_its_file(tmp_path, text):
    faults = stumbles(plant(tmp_path, f'answer(400, "{text}");\n'))
    assert len(faults) == 1 and faults[0].startswith(f'src/net/server.cc: "{text}"')
