"""No wait is called superfluous whose removal breaks a scenario of the search."""

from dataclasses import replace

import pytest

from studies.waits.playing import ROWS, Row, check, words_of
from syncverify.waits.answers import AnsweredWaits

SMALL = "parameters=1,micro_batches=1,steps=1,words=none"


def small(row: Row, *names: str) -> Row:
    return replace(row, subjects=names or row.subjects, scope=SMALL)


@pytest.mark.long
def test_the_check_finds_a_needed_wait_that_is_called_superfluous() -> None:
    row = small(ROWS["synchronizer"], "synchronizer")
    waits = words_of(row, examples=2, jobs=1)
    assert not check(row, waits, 20, jobs=1)["broken"]
    needed = waits.with_word("needed")
    lies = AnsweredWaits(
        waits.subjects,
        waits.scope,
        waits.max_ranks,
        waits.seed,
        waits.link,
        tuple(replace(each, word="superfluous", harm=None) for each in needed),
    )
    found = check(row, lies, 20, jobs=1)
    assert found["calls"] == len(needed)
    assert any("collectives.py" in each for each in found["broken"])


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("name", ["synchronizer", "ddp"])
def test_no_superfluous_wait_is_needed_by_10_000_scenarios(name: str) -> None:
    row = replace(ROWS[name], scope=SMALL)
    assert not check(row, words_of(row, 100, jobs=2), 10_000, jobs=2)["broken"]


@pytest.mark.nightly
@pytest.mark.long
def test_all_waits_of_our_synchronizer_are_needed() -> None:
    waits = words_of(ROWS["synchronizer"], 100, jobs=2)
    assert {each.word for each in waits.answers} == {"needed"}
