"""The table of pairs, and what its stored results have to be."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from studies.timemachine import results
from studies.timemachine.__main__ import main
from studies.timemachine.pairs import FOLDER, SIMULATE, Edit, Pair, table
from studies.timemachine.playing import Played
from studies.timemachine.results import EXAMPLES, Result, stored
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
SILENT = Played("run", EXAMPLES, 1.0, (), (), "", "")
CAUGHT = Played(
    "run",
    2,
    1.0,
    ("replicas_agree (replicas_differ)",),
    ("one",),
    "at file.py:3",
    "sv2",
)
HOLDS = Result("2026-01-01", "2.13.0", CAUGHT, SILENT, None, SILENT, "3")


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
    result = stored()[name]
    assert result.bad is not None
    assert result.bad.shows(PAIRS[name])
    others = [result.side(side) for side in PAIRS[name].sides[1:]]
    assert [side for side in others if side and not side.is_silent] == []


def test_a_result_as_expected_holds() -> None:
    assert HOLDS.holds(PAIR)


@pytest.mark.parametrize(
    "result",
    [
        replace(HOLDS, bad=SILENT),
        replace(HOLDS, bad=replace(CAUGHT, violations=("replicas_agree (other)",))),
        replace(HOLDS, bad=replace(CAUGHT, diagnosis="at file.py:4")),
        replace(HOLDS, good=CAUGHT),
        replace(HOLDS, good=replace(SILENT, examples=EXAMPLES - 1)),
        replace(HOLDS, good=None),
        replace(HOLDS, newest=None),
        replace(HOLDS, newest=CAUGHT),
        replace(HOLDS, bad=None),
    ],
    ids=[
        *("missed", "another cause", "another place"),
        *("accused", "few scenarios", "not played"),
        *("newest not played", "newest accused", "nothing played"),
    ],
)
def test_any_other_result_does_not(result: Result) -> None:
    assert not result.holds(PAIR)


def test_a_remedy_that_does_not_help_is_not_as_expected() -> None:
    pair = replace(PAIR, remedy=(Edit("file.py", "old", "new"),))
    assert not replace(HOLDS, repaired=CAUGHT).holds(pair)
    assert replace(HOLDS, repaired=replace(SILENT, examples=60)).holds(pair)


def test_the_newest_release_is_played_again_when_there_is_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "newest_release", lambda pair: "3")
    assert not HOLDS.needs(PAIR, "newest")
    assert replace(HOLDS, newest=None).needs(PAIR, "newest")
    monkeypatch.setattr(results, "newest_release", lambda pair: "4")
    assert HOLDS.needs(PAIR, "newest")
    assert not HOLDS.needs(PAIR, "good")


def test_an_unknown_pair_is_one_line() -> None:
    result = CliRunner().invoke(main, ["--only", "nothing"])
    assert result.exit_code == 2
    assert "Invalid value for '--only': 'nothing' is not one of" in result.output
