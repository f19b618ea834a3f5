"""A change that only happens to be right in the scenario of a violation is no fix."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.repair.game import Game
from syncverify.repair.source_edit import Edit
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.subject import Subject

BACKEND = SimBackend()
CAPABILITIES = Capabilities(varying_accumulations=True)
RIGHT = Path(__file__).with_name("flat_copies.py")


def subject_of(path: Path) -> Subject:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Subject("FlatCopies", module.FlatCopies, CAPABILITIES)


def game_of(scenario: Scenario, path: Path) -> Game:
    subject = subject_of(path)
    run = BACKEND.run(scenario, subject)
    first, *_ = check(scenario, run, CAPABILITIES)
    return Game(FoundViolation(first, scenario), subject, BACKEND)


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
    tmp_path: Path, line: str, wrong: str, false: str, scenario: Scenario
) -> None:
    game, edit = changed(tmp_path, line, wrong, scenario)
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
        ("group = parameters[0].device_mesh.get_group(axis)", "break", pair(())),
        ("for axis in axes:", "for axis in ():", pair(())),
    ],
)
def test_the_right_line_is_a_fix(
    tmp_path: Path, line: str, wrong: str, scenario: Scenario
) -> None:
    game, edit = changed(tmp_path, line, wrong, scenario)
    assert game.mends(edit)
    assert game.is_harmless(edit)
    assert game.is_confirmed(edit)


def changed(
    folder: Path, line: str, wrong: str, scenario: Scenario
) -> tuple[Game, Edit]:
    """Return the game of a wrong line, and the change that puts the right one there."""
    lines = RIGHT.read_text(encoding="utf-8").splitlines()
    place = next(n for n, each in enumerate(lines) if each.strip() == line)
    indent = len(lines[place]) - len(lines[place].lstrip())
    lines[place] = " " * indent + wrong
    path = folder / "flat_copies.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    return game_of(scenario, path), Edit(str(path), place + 1, 1, (line,), indent)
