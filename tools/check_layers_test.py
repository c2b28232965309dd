import pathlib
import shutil

import pytest
from check_layers import find_faults

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"


@pytest.fixture
def tree(tmp_path):
    """A copy of src/ that a test may damage."""
    return pathlib.Path(shutil.copytree(SOURCE, tmp_path / "src"))


def append(path, text):
    path.write_text((path.read_text() if path.exists() else "") + text)


def replace_row(tree, room, row):
    table = tree / "layers.txt"
    lines = [row if line.startswith(f"{room}:") else line for line in table.read_text().splitlines()]
    table.write_text("\n".join(lines))


def test_the_tree_follows_its_table():
    assert find_faults(SOURCE) == []


def test_a_planted_wrong_include_is_named_with_file_and_rooms(tree):
    append(tree / "tensor/tensor.h", '\n  #  include "engine/engine.h"\n')
    assert find_faults(tree) == [
        'tensor/tensor.h: includes "engine/engine.h", but tensor may not include engine'
    ]


def test_a_test_file_follows_the_row_of_its_room(tree):
    append(tree / "base/planted_test.cc", '#include "tensor/tensor.h"\n')
    assert find_faults(tree) == [
        'base/planted_test.cc: includes "tensor/tensor.h", but base may not include tensor'
    ]


def test_a_part_of_a_room_has_a_row_of_its_own(tree):
    append(tree / "store/io/planted.h", '#include "store/store.h"\n#include "crypto/crypto.h"\n')
    assert find_faults(tree) == [
        'store/io/planted.h: includes "store/store.h", but store/io may not include store',
        'store/io/planted.h: includes "crypto/crypto.h", but store/io may not include crypto',
    ]


def test_who_may_include_a_room_may_include_its_parts(tree):
    append(tree / "engine/planted.h", '#include "store/tiers/tier.h"\n')
    append(tree / "api/planted.h", '#include "store/tiers/tier.h"\n')
    assert find_faults(tree) == ['api/planted.h: includes "store/tiers/tier.h", but api may not include store/tiers']


def test_a_part_that_includes_its_room_is_a_cycle(tree):
    replace_row(tree, "store/io", "store/io: store")
    assert find_faults(tree) == ["layers.txt: cycle store -> store/io -> store"]


def test_apps_may_include_every_room(tree):
    append(tree / "apps/planted.cc", '#include "engine/engine.h"\n#include "gateway/gateway.h"\n')
    assert find_faults(tree) == []


def test_a_cycle_between_rows_is_shown_as_a_path(tree):
    replace_row(tree, "tensor", "tensor: kernels")
    assert find_faults(tree) == ["layers.txt: cycle tensor -> kernels -> tensor"]


def test_a_room_without_a_row_is_a_fault(tree):
    (tree / "planted").mkdir()
    assert find_faults(tree) == ["layers.txt: room planted has no row"]


def test_a_row_without_a_room_is_a_fault(tree):
    append(tree / "layers.txt", "\nplanted: base\n")
    assert find_faults(tree) == ["layers.txt: row planted has no folder"]
