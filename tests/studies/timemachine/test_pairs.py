"""The table of pairs, and what its stored results have to be."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from studies.timemachine import __main__ as command
from studies.timemachine import results
from studies.timemachine.pairs import FOLDER, SIMULATE, Edit, Pair, table
from studies.timemachine.playing import Played
from studies.timemachine.results import (
    EXAMPLES,
    PlayedSide,
    Sides,
    holds,
    needs,
    stored,
)
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.any_program import STATEMENTS
from syncverify.subjects.subject import BUILT_IN_SUBJECTS

PAIRS = {pair.name: pair for pair in table().pairs}
PAIR = Pair(
    "a pair",
    "package",
    "1",
    "It does something wrong.",
    issue="owner/repository#2",
    good="2",
    violates="replicas_agree",
    cause="replicas_differ",
    place="file.py:3",
)
SILENT = PlayedSide(PAIR.name, "good", "2", "2026-01-01", "2.13.0", EXAMPLES, 1.0)
CAUGHT = replace(
    SILENT,
    side="bad",
    violations=("replicas_agree (replicas_differ)",),
    names_place=True,
)
HOLDS = {"bad": CAUGHT, "good": SILENT, "newest": replace(SILENT, release="3")}


def test_names_of_pairs_are_distinct() -> None:
    names = [pair.name for pair in table().pairs]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", PAIRS)
def test_a_played_pair_expects_what_the_harness_can_say(name: str) -> None:
    pair = PAIRS[name]
    if pair.judge == SIMULATE:
        assert pair.violates in STATEMENTS
        assert (FOLDER / "programs" / f"{pair.subject}.py").is_file()
    else:
        assert pair.violates in {entry.name for entry in ALL_PROPERTIES}
        assert pair.subject in BUILT_IN_SUBJECTS or ":" in pair.subject
    assert pair.good or pair.remedy
    assert not pair.contract or (FOLDER / pair.contract).is_file()


@pytest.mark.parametrize("name", stored())
def test_a_stored_side_is_as_the_table_says(name: str) -> None:
    sides = stored()[name]
    assert sides["bad"].shows(PAIRS[name])
    others = [sides.get(side) for side in PAIRS[name].sides[1:]]
    assert [side for side in others if side and not side.is_silent] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"bad": SILENT},
        {"bad": replace(CAUGHT, violations=("replicas_agree (other)",))},
        {"bad": replace(CAUGHT, names_place=False)},
        {"good": CAUGHT},
        {"good": replace(SILENT, examples=EXAMPLES - 1)},
        {"newest": CAUGHT},
    ],
    ids=[
        *("missed", "another cause", "another place"),
        *("accused", "few scenarios", "newest accused"),
    ],
)
def test_any_other_result_does_not(changes: Sides) -> None:
    assert not holds(HOLDS | changes, PAIR)


@pytest.mark.parametrize("side", HOLDS)
def test_a_pair_with_a_side_that_was_not_played_does_not_hold(side: str) -> None:
    assert not holds({name: row for name, row in HOLDS.items() if name != side}, PAIR)


def test_a_remedy_that_does_not_help_is_not_as_expected() -> None:
    pair = replace(PAIR, remedy=(Edit("file.py", "old", "new"),))
    assert not holds({**HOLDS, "repaired": CAUGHT}, pair)
    assert holds({**HOLDS, "repaired": replace(SILENT, examples=60)}, pair)


def test_the_newest_release_is_played_again_when_there_is_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "newest_release", lambda pair: "3")
    assert not needs(HOLDS, PAIR, "newest")
    assert needs({}, PAIR, "newest")
    monkeypatch.setattr(results, "newest_release", lambda pair: "4")
    assert needs(HOLDS, PAIR, "newest")
    assert not needs(HOLDS, PAIR, "good")


def test_a_played_side_names_the_place_of_its_pair_or_another_one() -> None:
    played = Played(2, 1.0, CAUGHT.violations, "at file.py:3")
    assert PlayedSide.of(PAIR, "bad", played).shows(PAIR)
    elsewhere = replace(played, diagnosis="at file.py:4")
    assert not PlayedSide.of(PAIR, "bad", elsewhere).shows(PAIR)


def test_a_side_of_today_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "stored", lambda: {PAIR.name: HOLDS})
    assert command._is_missing(PAIR, "good", again=True)
    assert not command._is_missing(PAIR, "good", again=False)
    monkeypatch.setattr(command, "today", lambda: SILENT.date)
    assert not command._is_missing(PAIR, "good", again=True)


def test_an_unknown_pair_is_one_line() -> None:
    result = CliRunner().invoke(command.main, ["--only", "nothing"])
    assert result.exit_code == 2
    assert "Invalid value for '--only': 'nothing' is not one of" in result.output
