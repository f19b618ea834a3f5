"""No wait is called superfluous whose removal breaks a scenario of the search."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from studies.waits import playing
from studies.waits.page import read
from studies.waits.playing import PART_SIZE, ROWS, check, points_of, words_of
from syncverify.judge.ordering.kept_references import KIND as REFERENCE
from syncverify.scenario.token import decode

SMALL = "parameters=1,micro_batches=1,steps=1,words=none"


def words_of_calls(result: Mapping[str, Any]) -> set[str]:
    calls = (each for each in result["waits"] if each["kind"] != REFERENCE)
    return {each["word"] for each in calls}


@pytest.mark.long
def test_the_check_finds_a_wait_that_a_small_scope_calls_superfluous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(playing, "PART_SIZE", 20)
    row = replace(ROWS["synchronizer"], subjects=("synchronizer",), scope=SMALL)
    points = points_of(words_of(row, examples=2, jobs=1).to_json())
    # Few drawn scenarios need the wait of `Bucket.release()`: none of 100 in a trial. So
    # the one of its stored word is played after the drawn ones, and no seed matters.
    (token,) = (
        each["harm"]["token"]
        for each in read()["synchronizer"]["waits"]
        if each["function"] == "release" and each["path"].endswith("/bucket.py")
    )
    drawn, known = playing._drawn, decode(token).scenario
    monkeypatch.setattr(playing, "_drawn", lambda *given: [*drawn(*given), known])
    found = check(row, points, 0, jobs=1)
    assert any("bucket.py" in str(point) for point in found.broken)
    # The check stops in its last scenario, which was added to the 20 that it draws.
    assert found.num_scenarios == 21


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("name", ["synchronizer", "ddp"])
def test_no_superfluous_wait_is_needed_by_10_000_scenarios(name: str) -> None:
    points = points_of(words_of(ROWS[name], 100, jobs=2).to_json())
    for number in range(10_000 // PART_SIZE if points else 0):
        assert check(ROWS[name], points, number, jobs=2).broken == {}


@pytest.mark.nightly
@pytest.mark.long
def test_all_waits_of_our_synchronizer_are_needed() -> None:
    waits = words_of(ROWS["synchronizer"], 100, jobs=2)
    assert words_of_calls(waits.to_json()) == {"needed"}


def test_the_stored_words_of_our_synchronizer_are_all_needed() -> None:
    ours = read()["synchronizer"]["waits"]  # kept references as well
    assert {each["word"] for each in ours} == {"needed"}


def test_no_stored_check_found_a_superfluous_wait_that_is_needed() -> None:
    stored = read()
    assert {name: each["check"]["broken"] for name, each in stored.items()} == {
        name: [] for name in ROWS
    }
    assert stored["ddp"]["check"]["scenarios"] >= 10_000
