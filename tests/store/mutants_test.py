"""The planted faults of the store: they fit the sources, and ten of them a day are seen."""

import datetime

import mutants
import pytest


@pytest.mark.fast
def test_every_fault_can_be_planted():
    assert len(mutants.MUTANTS) >= 40
    for path, before, after in mutants.MUTANTS:
        assert (mutants.ROOT / path).read_text().count(before) == 1, f"{path}: {before}"
        assert before != after


@pytest.mark.nightly
def test_ten_planted_faults_are_seen():
    day = datetime.date.today().toordinal()
    numbers = [(10 * day + i) % len(mutants.MUTANTS) for i in range(10)]
    assert mutants.main(numbers) == 0, f"faults {numbers}, see the output"
