"""Programs with drawn arguments: they are judged, and an error is a violation."""

import json
import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from studies.timemachine import drawn

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
    options: list[str],
    num_played: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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
