"""No wait is called superfluous whose removal breaks a scenario of the search."""

from dataclasses import replace

import pytest

from studies.waits.playing import ROWS, check, words_of

SMALL = "parameters=1,micro_batches=1,steps=1,words=none"


@pytest.mark.long
def test_the_check_finds_a_wait_that_a_small_scope_calls_superfluous() -> None:
    row = replace(ROWS["synchronizer"], subjects=("synchronizer",), scope=SMALL)
    found = check(row, words_of(row, examples=2, jobs=1), 20, jobs=1)
    assert [each for each in found["broken"] if "bucket.py" in each] != []


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("name", ["synchronizer", "ddp"])
def test_no_superfluous_wait_is_needed_by_10_000_scenarios(name: str) -> None:
    waits = words_of(ROWS[name], 100, jobs=2)
    assert not check(ROWS[name], waits, 10_000, jobs=2)["broken"]


@pytest.mark.nightly
@pytest.mark.long
def test_all_waits_of_our_synchronizer_are_needed() -> None:
    waits = words_of(ROWS["synchronizer"], 100, jobs=2)
    assert {each.word for each in waits.answers} == {"needed"}
