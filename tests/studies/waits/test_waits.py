"""No wait is called superfluous whose removal breaks a scenario of the search."""

from dataclasses import replace

import pytest

from studies.waits import playing
from studies.waits.playing import PART_SIZE, ROWS, check, words_of
from studies.waits.results import ANSWERED, POINTS, Point, superfluous
from syncverify.scenario.token import decode
from syncverify.waits.answers import AnsweredWaits

SMALL = "parameters=1,micro_batches=1,steps=1,words=none"


def points_of(waits: AnsweredWaits) -> list[Point]:
    return [Point.of("", answer) for answer in waits.answers]


@pytest.mark.long
def test_the_check_finds_a_wait_that_a_small_scope_calls_superfluous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(playing, "PART_SIZE", 20)
    row = replace(ROWS["synchronizer"], subjects=("synchronizer",), scope=SMALL)
    points = superfluous(points_of(words_of(row, examples=2, jobs=1)))
    # Few drawn scenarios need the wait of `Bucket.release()`: none of 100 in a trial. So
    # the one of its stored word is played after the drawn ones, and no seed matters.
    (token,) = (
        each.token
        for each in POINTS.read()
        if each.row == "synchronizer"
        and each.function == "release"
        and each.path.endswith("/bucket.py")
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
    points = superfluous(points_of(words_of(ROWS[name], 100, jobs=2)))
    for number in range(10_000 // PART_SIZE if points else 0):
        assert check(ROWS[name], points, number, jobs=2).broken == {}


@pytest.mark.nightly
@pytest.mark.long
def test_all_waits_of_our_synchronizer_are_needed() -> None:
    waits = words_of(ROWS["synchronizer"], 100, jobs=2)
    calls = [each for each in points_of(waits) if not each.is_reference]
    assert {each.word for each in calls} == {"needed"}


def test_the_stored_words_of_our_synchronizer_are_all_needed() -> None:
    ours = [each for each in POINTS.read() if each.row == "synchronizer"]
    assert {each.word for each in ours} == {"needed"}  # kept references as well


def test_no_stored_check_found_a_superfluous_wait_that_is_needed() -> None:
    stored = {each.row: each for each in ANSWERED.read()}
    broken = {name: each.check_broken for name, each in stored.items()}
    assert broken == dict.fromkeys(ROWS, ())
    assert stored["ddp"].check_scenarios >= 10_000
