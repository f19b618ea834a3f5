"""Mutants: how many there are, that each is one mistake, and that names stay."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from studies.mutants import __main__ as command
from studies.mutants.generation import (
    OPERATORS,
    PACKAGE,
    Mutant,
    drawn,
    mutants,
)
from studies.mutants.ordering import WAITS
from studies.mutants.results import reasons, store, stored
from studies.mutants.state import NOTES, VIEWS
from studies.mutants.targets import LEFT_OUT_FUNCTIONS, LEFT_OUT_NAMES, TARGETS
from studies.mutants.trial import Outcome, Trial
from syncverify.processes.calls import run_here

ALL = mutants()

SOURCE = """\
def launch(self):
    self._side.wait_for(self._writers)
    self._start()
"""


def of_source(folder: Path, text: str) -> dict[str, Mutant]:
    """Return the mutants of a package in which one file holds more than nothing."""
    for module in TARGETS:
        (folder / module).parent.mkdir(exist_ok=True)
        (folder / f"{module}.py").write_text("")
    (folder / "bucket/bucket.py").write_text(text)
    return {mutant.id: mutant for mutant in mutants(folder)}


@pytest.mark.parametrize(
    "names", [WAITS, VIEWS, NOTES, LEFT_OUT_FUNCTIONS, LEFT_OUT_NAMES]
)
def test_names_of_operators_occur_in_the_synchronizer(names: frozenset[str]) -> None:
    used = {
        word
        for file in PACKAGE.rglob("*.py")
        for word in re.findall(r"\w+", file.read_text("utf-8"))
    }
    assert names <= used


def test_ids_do_not_depend_on_what_is_above(tmp_path: Path) -> None:
    before = of_source(tmp_path, SOURCE)
    after = of_source(tmp_path, f"import torch\n\n\n{SOURCE}")
    assert list(before) == list(after)
    moved = [after[name].line - before[name].line for name in before]
    assert moved == [3] * len(before)


def test_a_wait_is_left_out_delayed_and_made_for_another_stream(tmp_path: Path) -> None:
    found = {mutant.operator: mutant for mutant in of_source(tmp_path, SOURCE).values()}
    assert {*found} == {"drop_wait", "late_wait", "wrong_stream"}
    assert found["drop_wait"].diff == (
        "-     self._side.wait_for(self._writers)\n+     pass"
    )
    assert found["late_wait"].added == (
        "    self._start()\n    self._side.wait_for(self._writers)"
    )
    assert found["wrong_stream"].added.endswith("wait_for([*self._writers][-1:])")


def test_messages_and_figures_are_left_alone(tmp_path: Path) -> None:
    counted = "def __repr__(self):\n    if self.x:\n        self.count += 1\n"
    raised = "def f(self):\n    raise ValueError(self.x[1:])\n"
    assert of_source(tmp_path, counted) == {}
    assert of_source(tmp_path, raised) == {}


def test_every_equivalent_one_still_exists_and_says_why() -> None:
    known = reasons()
    assert known.keys() <= {mutant.id for mutant in ALL}
    # A sentence, and not a word.
    assert all(len(reason.split()) > 5 for reason in known.values())


NOTICED, ALIVE, UNTRIED = drawn(ALL, 3)
OUTCOMES = {NOTICED.id: Outcome("a", 1, 2.0), ALIVE.id: Outcome("", 9, 9.0)}


def test_outcomes_are_stored(tmp_path: Path) -> None:
    file = tmp_path / "mutants.jsonl"
    for name, outcome in OUTCOMES.items():
        store(file, name, outcome)
    assert stored(file) == OUTCOMES


@pytest.mark.parametrize(
    ("only", "tried"), [(UNTRIED, [UNTRIED]), (ALIVE, [ALIVE]), (NOTICED, [])]
)
def test_a_part_is_tried_and_the_other_outcomes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: Mutant, tried: list[Mutant]
) -> None:
    file, trials = tmp_path / "mutants.jsonl", list[Mutant]()

    def try_it(trial: Trial) -> Outcome:
        trials.append(trial.mutant)
        return Outcome("now", 1, 1.0)

    monkeypatch.setattr("studies.crews.crew_at", lambda *_: run_here)
    monkeypatch.setattr(command, "tried", try_it)
    monkeypatch.setattr(command, "mutants", lambda: [NOTICED, ALIVE, UNTRIED])
    for name, outcome in OUTCOMES.items():
        store(file, name, outcome)
    CliRunner().invoke(command.main, ["--only", only.id, "--json", str(file)])
    assert trials == tried
    now = {each.id: Outcome("now", 1, 1.0) for each in tried}
    assert stored(file) == {**OUTCOMES, **now}


def test_each_is_one_change_of_the_source_at_its_place() -> None:
    assert {mutant.operator for mutant in ALL} == {each.__name__ for each in OPERATORS}
    assert len({mutant.id for mutant in ALL}) == len(ALL)
    texts = {(mutant.path, mutant.text) for mutant in ALL}
    texts |= {(path, (PACKAGE / path).read_text()) for path, _ in texts}
    assert len(texts) == len(ALL) + len({mutant.path for mutant in ALL})
    for mutant in ALL:
        named = re.escape(f"{mutant.operator}-{mutant.path.stem}")
        assert re.fullmatch(named + "-[0-9a-f]{8}", mutant.id)
        lines = (PACKAGE / mutant.path).read_text().splitlines()
        assert lines[mutant.line - 1] == mutant.removed.splitlines()[0]
        compile(mutant.text, mutant.place, "exec")
