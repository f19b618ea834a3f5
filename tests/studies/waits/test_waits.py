"""No wait is called superfluous whose removal breaks a scenario of the search."""

from dataclasses import replace

import pytest

from studies.waits import playing
from studies.waits.page import read
from studies.waits.playing import PART_SIZE, ROWS, check, points_of, words_of

SMALL = "parameters=1,micro_batches=1,steps=1,words=none"


@pytest.mark.long
def test_the_check_finds_a_wait_that_a_small_scope_calls_superfluous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(playing, "PART_SIZE", 20)
    row = replace(ROWS["synchronizer"], subjects=("synchronizer",), scope=SMALL)
    points = points_of(words_of(row, examples=2, jobs=1).to_json())
    broken = [str(point) for point, _ in check(row, points, 0, jobs=1)]
    assert any("bucket.py" in each for each in broken)


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("name", ["synchronizer", "ddp"])
def test_no_superfluous_wait_is_needed_by_10_000_scenarios(name: str) -> None:
    points = points_of(words_of(ROWS[name], 100, jobs=2).to_json())
    for number in range(10_000 // PART_SIZE if points else 0):
        assert check(ROWS[name], points, number, jobs=2) == []


@pytest.mark.nightly
@pytest.mark.long
def test_all_waits_of_our_synchronizer_are_needed() -> None:
    waits = words_of(ROWS["synchronizer"], 100, jobs=2)
    assert {each.word for each in waits.answers} == {"needed"}


def test_the_stored_words_of_our_synchronizer_are_all_needed() -> None:
    stored = read()
    assert {each["word"] for each in stored["synchronizer"]["waits"]} == {"needed"}
    assert [each["check"]["broken"] for each in stored.values()] == [[]] * len(stored)
