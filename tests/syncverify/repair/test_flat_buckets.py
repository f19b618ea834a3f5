"""Fixes of a synchronizer of flat buckets: waits that are missing, a count that is one less."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.repair.fix_search import find_fix
from syncverify.repair.game import Game
from syncverify.repair.missing_orders import candidates
from syncverify.repair.source_edit import Edit
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.subject import Subject

RIGHT = Path(__file__).with_name("flat_buckets.py")
BACKEND = SimBackend()
SPEC = ParameterSpec("p0", (), ("R", "R"))
TWO_AXES = Scenario(MeshSpec((1, 2), ("dp", "tp")), (SPEC,), (1,), 1 << 20)
ONE_AXIS = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (), ("R",)),), (1,), 1 << 20
)
TWICE = Scenario(MeshSpec((2, 2), ("dp", "tp")), (SPEC,), (2,), 1 << 20)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a changed subject; its module is forgotten in the end."""
    monkeypatch.setitem(sys.modules, "flat_buckets", ModuleType("flat_buckets"))
    return tmp_path / "flat_buckets.py"


def game_of(path: Path, scenario: Scenario, old: str, new: str) -> Game:
    """Return the game of the first violation of a changed subject."""
    text = RIGHT.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    subject = Subject("FlatBuckets", module.FlatBuckets, Capabilities())
    first, *_ = check(scenario, BACKEND.run(scenario, subject), Capabilities())
    return Game(FoundViolation(first, scenario), subject, BACKEND)


def waits(game: Game) -> list[Edit]:
    return [
        edit
        for disorder in game.disorders()
        for edit in candidates(disorder, game.first_line_of, game.look)
    ]


@pytest.mark.slow
def test_a_wait_stands_outside_of_a_loop_that_does_not_bind_the_work(
    path: Path,
) -> None:
    line = "            work.wait()\n"
    game = game_of(path, ONE_AXIS, line, "")
    lines = path.read_text("utf-8").splitlines()
    first = waits(game)[0]
    assert (first.lines, first.indent) == (("work.wait()",), 12)
    assert lines[first.first - 1] == "            for part in parts:"


@pytest.mark.slow
def test_a_wait_may_come_before_the_second_launch_of_one_line(path: Path) -> None:
    game = game_of(path, TWO_AXES, "works[-1].wait()", "pass")
    lines = path.read_text("utf-8").splitlines()
    before_it = [
        each
        for each in waits(game)
        if "works.append(" in lines[each.first - 1] and not each.num_lines
    ]
    assert [each.lines for each in before_it] == [
        ("for work in works:", "    work.wait()")
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("scenario", "old", "new", "change"),
    [
        (
            TWICE,
            "< self.need:",
            "< self.need - 1:",
            [
                "- if self.count[parameter] < self.need - 1:",
                "+ if self.count[parameter] < self.need:",
            ],
        ),
    ],
)
def test_a_change_that_costs_no_more_than_it_has_to_is_a_fix(
    path: Path, scenario: Scenario, old: str, new: str, change: list[str]
) -> None:
    game = game_of(path, scenario, old, new)
    fix = find_fix(game.found, game.subject, BACKEND)
    assert fix is not None
    assert [line for line in fix.lines if line[0] in "+-"] == change
