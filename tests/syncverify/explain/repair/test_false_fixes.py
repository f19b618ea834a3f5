"""Fixes of files of flat buffers: a wrong line, the right one, and changes that agree by chance."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from syncverify.explain.repair.diagnosis import find_fix
from syncverify.explain.repair.game import Game
from syncverify.explain.repair.missing_orders import candidates
from syncverify.explain.repair.source_edit import Edit
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.subject import Subject
from tests.programs import one_parameter, violations

BACKEND = SimBackend()
COPIES, BUCKETS = "flat_copies", "flat_buckets"
CLASSES = {COPIES: "FlatCopies", BUCKETS: "FlatBuckets"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a changed file; its module is forgotten in the end."""
    for name in CLASSES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    return tmp_path


def game_of(folder: Path, name: str, text: str, scenario: Scenario) -> Game:
    """Return the game of the first violation of a changed file."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    capabilities = Capabilities(varying_accumulations=name == COPIES)
    subject = Subject(CLASSES[name], vars(module)[CLASSES[name]], capabilities)
    first, *_ = violations(subject, scenario)
    return Game(FoundViolation(first, scenario), subject, BACKEND)


def source_of(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text("utf-8")


def pair(*shapes: tuple[int, ...], counts: tuple[int, ...] = (1,)) -> Scenario:
    parameters = tuple(
        ParameterSpec(f"p{number}", shape, ("R",))
        for number, shape in enumerate(shapes)
    )
    return Scenario(MeshSpec((2,), ("dp",)), parameters, counts, 1 << 20)


OFFSET = "start += part.numel()"
COUNTS = "return self.num_came == len(self.hooks) * self.required"


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "wrong", "false", "scenario"),
    [
        (OFFSET, "start += 0", "start += part.shape[0]", pair((3,), (3, 2))),
        (OFFSET, "start += 0", "start += max(part.shape, default=1)", pair((1, 3), ())),
        (OFFSET, "start += 0", "start += 3", pair((3,), (3,))),
        (COUNTS, "return False", "return self.num_came == 1", pair(())),
        (COUNTS, "return False", "return self.num_came == len(self.hooks) + self.required - 1", pair(())),
        ("self.required = count", "pass", "self.required = max(self.required, count)", pair((), counts=(1, 2))),
        ("self.required = count", "pass", "self.required += 1", pair((), counts=(1, 2))),
        ("group = parameters[0].device_mesh.get_group(axis)", "break", "group = dist.group.WORLD", pair(())),
        ("for axis in axes:", "for axis in ():", "for axis in axes[:1]:", pair(())),
    ],
)  # fmt: skip
def test_what_agrees_by_chance_is_refused(
    folder: Path, line: str, wrong: str, false: str, scenario: Scenario
) -> None:
    game, edit = changed(folder, line, wrong, scenario)
    by_chance = replace(edit, lines=(false,))
    assert game.mends(by_chance)
    assert not (game.is_harmless(by_chance) and game.is_confirmed(by_chance))


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "wrong", "scenario"),
    [
        (OFFSET, "start += 0", pair((3,), (3, 2))),
        (COUNTS, "return False", pair(())),
        ("self.required = count", "pass", pair((), counts=(1, 2))),
    ],
)
def test_the_right_line_is_a_fix(
    folder: Path, line: str, wrong: str, scenario: Scenario
) -> None:
    game, edit = changed(folder, line, wrong, scenario)
    assert game.mends(edit)
    assert game.is_harmless(edit)
    assert game.is_confirmed(edit)


def changed(
    folder: Path, line: str, wrong: str, scenario: Scenario
) -> tuple[Game, Edit]:
    """Return the game of a wrong line, and the change that puts the right one there."""
    lines = source_of(COPIES).splitlines()
    place = next(n for n, each in enumerate(lines) if each.strip() == line)
    indent = len(lines[place]) - len(lines[place].lstrip())
    lines[place] = " " * indent + wrong
    game = game_of(folder, COPIES, "\n".join(lines), scenario)
    path = str(folder / f"{COPIES}.py")
    return game, Edit(path, place + 1, 1, (line,), indent)


SPEC = ParameterSpec("p0", (), ("R", "R"))
TWO_AXES = Scenario(MeshSpec((1, 2), ("dp", "tp")), (SPEC,), (1,), 1 << 20)
ONE_AXIS = one_parameter(2, "p0", ())
TWICE = Scenario(MeshSpec((2, 2), ("dp", "tp")), (SPEC,), (2,), 1 << 20)


def waits(game: Game) -> list[Edit]:
    return [
        edit for disorder in game.disorders() for edit in candidates(disorder, game)
    ]


@pytest.mark.slow
def test_a_wait_stands_outside_of_a_loop_that_does_not_bind_the_work(
    folder: Path,
) -> None:
    text = source_of(BUCKETS).replace("            work.wait()\n", "")
    game, lines = game_of(folder, BUCKETS, text, ONE_AXIS), text.splitlines()
    first = waits(game)[0]
    assert (first.lines, first.indent) == (("work.wait()",), 12)
    assert lines[first.first - 1] == "            for part in parts:"


@pytest.mark.slow
def test_a_wait_may_come_before_the_second_launch_of_one_line(folder: Path) -> None:
    text = source_of(BUCKETS).replace("works[-1].wait()", "pass")
    game, lines = game_of(folder, BUCKETS, text, TWO_AXES), text.splitlines()
    before_it = [
        each
        for each in waits(game)
        if "works.append(" in lines[each.first - 1] and not each.num_lines
    ]
    assert [each.lines for each in before_it] == [
        ("for work in works:", "    work.wait()")
    ]


@pytest.mark.long
def test_a_change_that_costs_no_more_than_it_has_to_is_a_fix(folder: Path) -> None:
    wrong, right = "< self.need - 1:", "< self.need:"
    text = source_of(BUCKETS).replace(right, wrong)
    game = game_of(folder, BUCKETS, text, TWICE)
    fix = find_fix(game)
    assert fix is not None
    assert [line for line in fix.lines if line[0] in "+-"] == [
        f"- if self.count[parameter] {wrong}",
        f"+ if self.count[parameter] {right}",
    ]
