"""An exhaustive search plays each scenario of its scope once, and goes on after an interrupt."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncverify import verify
from syncverify.command.verification.verify import CoverageGap, PropertyViolation
from syncverify.report.coverage import Bound
from syncverify.report.report import Report
from syncverify.report.text import verdict
from syncverify.scenario.schedule import COMPLETE, RANDOM, SAME, ScheduleCoverage
from syncverify.scenario.small_scope import SmallScope
from syncverify.search import sharded_search, shards, shrinking
from tests.syncverify.search.search_searches import Interrupting
from tests.syncverify.search.search_subjects import Naive, SkipsSecond

pytestmark = pytest.mark.slow
FEW = 8  # runs to shrink: no test here needs the smallest scenario
SMALL = "parameters=1,micro_batches=1,words=none"
PAIRS = "parameters=2,steps=1,micro_batches=1,words=none"


def play(subject: Any, folder: Path, scope: str = SMALL, **more: Any) -> Report:
    return verify(subject, exhaustive=True, scope=scope, database=folder, **more)


@pytest.fixture(scope="module")
def of_pairs(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return the report of one call that plays all pairs, in parts of 5."""
    folder = tmp_path_factory.mktemp("pairs")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(shards, "_LEAST_OF_SCOPE", 5)
        monkeypatch.setattr(shrinking, "_MAX_SHRINK_RUNS", FEW)
        monkeypatch.setattr(shrinking, "_MAX_SIMPLER_RUNS", FEW)
        with pytest.raises(PropertyViolation, match="not_reduced") as raised:
            play(SkipsSecond, folder, PAIRS)
    return raised.value.report


def files_in(folder: Path) -> list[str]:
    return [each.name for each in folder.glob("exhaustive-*.shards")]


@pytest.mark.slow
def test_a_right_subject_holds_in_all_scenarios(tmp_path: Path) -> None:
    report = play(Naive, tmp_path)
    bound = report.bound
    assert bound == Bound(SmallScope.parse(SMALL), 8, 8, {ScheduleCoverage(SAME): 8}, 0)
    assert report.examples == 8
    words = "; all 8 of them hold, with all schedules: order matters in none of them"
    assert verdict(report).endswith(words)
    assert report.to_json()["bound"]["holds"]
    assert files_in(tmp_path) == []


@pytest.mark.long
def test_a_defect_of_the_last_scenarios_is_reported_as_by_a_search(
    of_pairs: Report,
) -> None:
    (found,) = of_pairs.violations
    assert len(found.scenario.parameters) == 2
    bound = of_pairs.bound
    assert bound.num_played == bound.num_scenarios
    assert not bound.is_proof


@pytest.mark.long
def test_the_same_call_goes_on_after_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_pairs: Report
) -> None:
    monkeypatch.setattr(shards, "_LEAST_OF_SCOPE", 5)
    monkeypatch.setattr(shrinking, "_MAX_SHRINK_RUNS", FEW)
    monkeypatch.setattr(shrinking, "_MAX_SIMPLER_RUNS", FEW)
    with pytest.raises(KeyboardInterrupt):
        play(SkipsSecond, tmp_path, PAIRS, progress=Interrupting(12))
    assert len(files_in(tmp_path)) == 1
    later = Interrupting(-1)
    with pytest.raises(PropertyViolation) as resumed:
        play(SkipsSecond, tmp_path, PAIRS, progress=later)
    # Two parts of 5 were whole, and the third begins anew.
    assert later.num_played[0] == 11
    first, second = (
        # `Interrupting` stands beside the subject, so its lines are counted too.
        replace(each, seconds=0, seed=0, lines=of_pairs.lines)
        for each in (resumed.value.report, of_pairs)
    )
    assert first == second
    assert files_in(tmp_path) == []


@pytest.mark.slow
def test_a_time_limit_leaves_the_rest_to_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_LEAST_OF_SCOPE", 2)
    clock = iter(range(1000))
    monkeypatch.setattr(sharded_search.time, "monotonic", lambda: next(clock))
    with pytest.raises(CoverageGap, match="the same command goes on") as raised:
        play(Naive, tmp_path, time_limit_seconds=5)
    bound = raised.value.report.bound
    assert not bound.is_proof


def test_schedules_that_were_not_played_are_no_proof() -> None:
    played = {
        ScheduleCoverage(SAME): 1,
        ScheduleCoverage(COMPLETE, 3, 5): 1,
        ScheduleCoverage(RANDOM, probability=0.1): 1,
    }
    bound = Bound(SmallScope(), 3, 3, played, 0)
    assert (bound.num_undecided, bound.num_branching, bound.num_classes) == (1, 1, 3)
    assert not bound.is_proof
    assert bound.gap == (
        "1 scenario of the scope had more classes of schedules than were played; raise N of "
        "--schedules all:N"
    )
