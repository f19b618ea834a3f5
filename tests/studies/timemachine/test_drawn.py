"""Programs with drawn arguments: they are judged, and a wrong value is a violation."""

import json
import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from studies.timemachine import drawn
from studies.timemachine.comparing import WrongValueError, check_equal
from studies.timemachine.round import Round


def _draw(random: Random) -> dict[str, Any]:
    return {"ranks": 1, "number": random.randint(1, 4)}


def _program(_rank: int, *, number: int) -> None:
    check_equal("the number", torch.tensor(min(number, 3)), torch.tensor(number))


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made")
    vars(module).update(draw=_draw, program=_program)
    monkeypatch.setitem(sys.modules, f"{drawn.FOLDER}.made", module)


@pytest.mark.parametrize(("stops", "examples"), [([], 12), (["--stop-at-first"], None)])
def test_a_wrong_value_is_a_violation_with_its_scenario(
    stops: list[str], examples: int | None, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    arguments = ["made", "--examples", "12", "--seed", "0", "--json", str(report)]
    told = CliRunner().invoke(drawn.main, [*arguments, *stops])
    content = json.loads(report.read_text())
    (found,) = content["violations"]
    first = next(n for n in range(1, 13) if _draw(Random(f"0:{n}"))["number"] == 4)
    assert told.exit_code == 1
    assert found["property"] == "every_rank_finishes"
    assert found["evidence"]["cause"] == "raised_WrongValueError"
    assert found["token"] == f"0:{first}"
    assert content["examples"] == (examples or first)
    assert "expected [4], observed [3]" in told.output.replace(".0", "")
    assert f"scenario:   1 ranks, number=4\n  replay:     seed 0:{first}" in told.output


def test_values_are_equal_up_to_rounding_and_have_the_same_shape() -> None:
    one = torch.ones(2)
    check_equal("one", one + 1e-6, one)
    for other in (one + 1e-2, torch.ones(1)):
        with pytest.raises(WrongValueError, match="one is wrong"):
            check_equal("one", other, one)


def test_a_round_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    Round(tmp_path / "round.json").add("a", "bad")
    again = Round(tmp_path / "round.json")
    assert again.has("a", "bad")
    assert not again.has("a", "good")
    again.end()
    assert not again.has("a", "bad")
