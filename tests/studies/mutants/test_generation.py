"""Mutants: how many there are, that each is one mistake, and that a new process notices one."""

import functools
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from studies.mutants import __main__ as command
from studies.mutants.generation import OPERATORS, PACKAGE, Mutant, drawn, mutants
from studies.mutants.ordering import WAITS
from studies.mutants.results import Row, reasons, rows_in
from studies.mutants.state import NOTES, VIEWS
from studies.mutants.targets import LEFT_OUT_FUNCTIONS, LEFT_OUT_NAMES, TARGETS
from studies.mutants.trial import Trial
from syncverify.processes.calls import run_here
from tests.warm_python import ROOT, python

ALL = mutants()

SOURCE = """\
def launch(self):
    self._side.wait_for(self._writers)
    self._start()
"""


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


def test_a_wait_is_left_out_delayed_and_made_for_another_stream(tmp_path: Path) -> None:
    """The package has one file that holds more than nothing."""
    for module in TARGETS:
        (tmp_path / module).parent.mkdir(exist_ok=True)
        (tmp_path / f"{module}.py").write_text("")
    (tmp_path / "bucket/bucket.py").write_text(SOURCE)
    found = {mutant.operator: mutant for mutant in mutants(tmp_path)}
    assert {*found} == {"drop_wait", "late_wait", "wrong_stream"}
    assert found["drop_wait"].diff == (
        "-     self._side.wait_for(self._writers)\n+     pass"
    )
    assert found["late_wait"].added == (
        "    self._start()\n    self._side.wait_for(self._writers)"
    )
    assert found["wrong_stream"].added.endswith("wait_for([*self._writers][-1:])")


def test_every_equivalent_one_still_exists_and_says_why() -> None:
    known = reasons()
    assert known.keys() <= {mutant.id for mutant in ALL}
    # A sentence, and not a word.
    assert all(len(reason.split()) > 5 for reason in known.values())


NOTICED, ALIVE, UNTRIED = drawn(ALL, 3)
DAY = "2026-01-01"
ROWS = [Row(NOTICED.id, DAY, "a", 1, 2.0), Row(ALIVE.id, DAY, "", 9, 9.0)]


@pytest.mark.parametrize(
    ("only", "tried"), [(UNTRIED, [UNTRIED]), (ALIVE, [ALIVE]), (NOTICED, [])]
)
def test_a_part_is_tried_and_the_other_outcomes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: Mutant, tried: list[Mutant]
) -> None:
    file, trials = rows_in(tmp_path / "mutants.jsonl"), list[Mutant]()

    def try_it(trial: Trial) -> Row:
        trials.append(trial.mutant)
        return Row(trial.mutant.id, DAY, "now", 1, 1.0)

    monkeypatch.setattr("studies.harness.crew_at", lambda *_: run_here)
    monkeypatch.setattr(command, "tried", try_it)
    monkeypatch.setattr(command, "mutants", lambda: [NOTICED, ALIVE, UNTRIED])
    file.write(ROWS)
    CliRunner().invoke(command.main, ["--only", only.id, "--json", str(file.path)])
    assert trials == tried
    others = [row for row in ROWS if row.id not in {each.id for each in tried}]
    now = [Row(each.id, DAY, "now", 1, 1.0) for each in tried]
    assert {*file.read()} == {*others, *now}


@pytest.mark.long
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


# Start of the id of one mutant: a stream reads a sum and does not wait for it.
UNAWAITED = "drop_wait-collectives"


@pytest.mark.nightly
def test_a_scenario_notices_a_sum_that_nobody_waits_for(tmp_path: Path) -> None:
    written = tmp_path / "mutants.jsonl"
    only = ("--only", UNAWAITED, "--jobs", "1", "--json", str(written))
    # A process that has not imported the synchronizer yet.
    play = functools.partial(python, "-m", "studies.mutants", *only, folder=ROOT)
    ended = play()
    assert ended.returncode == 0, ended.stderr
    entry = json.loads(written.read_text())
    assert entry["killed_by"] == "wait_orders_reads_after_reduce (read_before_reduced)"
    assert entry["examples"] <= 20
    again = play()
    assert again.returncode == 0, again.stderr
    assert entry["id"] not in again.stdout, "a killed mutant is not tried again"
