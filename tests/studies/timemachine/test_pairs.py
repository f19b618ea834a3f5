"""The table of pairs, its stored results, and programs with drawn arguments."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from studies.timemachine import drawn
from studies.timemachine.pairs import FOLDER, SIMULATE, Edit, Pair, table
from studies.timemachine.results import EXAMPLES, PlayedSide, Sides, holds, stored
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.registry import STATEMENTS_IN_ANY_PROGRAM
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


@pytest.mark.parametrize("name", PAIRS)
def test_a_played_pair_expects_what_the_harness_can_say(name: str) -> None:
    pair = PAIRS[name]
    if pair.judge == SIMULATE:
        assert pair.violates in STATEMENTS_IN_ANY_PROGRAM
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


SEED = 0
NUM_EXAMPLES = 12


def draw(random: Random) -> dict[str, Any]:
    return {"ranks": 1, "number": random.randint(1, 4)}


def program(_rank: int, *, number: int) -> None:
    """Raise where the number is 4."""
    if number == 4:
        raise ArithmeticError("the number is wrong")


# The first example that is wrong.
FIRST = next(
    number
    for number in range(1, NUM_EXAMPLES + 1)
    if draw(Random(f"{SEED}:{number}"))["number"] == 4
)


@pytest.mark.parametrize(
    ("options", "num_played"), [([], NUM_EXAMPLES), (["--stop-at-first"], FIRST)]
)
def test_an_error_is_a_violation_with_its_scenario(
    options: list[str], num_played: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("made")
    vars(module).update(draw=draw, program=program)
    monkeypatch.setitem(sys.modules, f"{drawn.FOLDER}.made", module)
    report = tmp_path / "report.json"
    arguments = [
        "made", f"--examples={NUM_EXAMPLES}", f"--seed={SEED}", f"--json={report}",
    ]  # fmt: skip
    result = CliRunner().invoke(drawn.main, [*arguments, *options])
    assert result.exit_code == 1
    content = json.loads(report.read_text())
    assert content["examples"] == num_played
    assert [
        (e["property"], e["evidence"], e["token"]) for e in content["violations"]
    ] == [
        ("every_rank_finishes", {"cause": "raised_ArithmeticError"}, f"{SEED}:{FIRST}")
    ]
    assert "the number is wrong" in result.output
    assert (
        f"scenario:   1 rank, number=4\n  replay:     seed {SEED}:{FIRST}"
        in result.output
    )
