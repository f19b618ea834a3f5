"""The search is deterministic, plays nothing twice, and reports each violation."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import syncverify.search.budget
import syncverify.search.shrinking
from syncverify.errors import InternalError
from syncverify.progress import SilentProgress
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.settings import Settings
from syncverify.search.result import SearchResult
from syncverify.search.search import first_met, search
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.run import Fault, RankRun, Run
from tests.programs import one_parameter
from tests.syncverify.search.search_searches import (
    Counting,
    Failing,
    Listening,
    identities,
    look,
)
from tests.syncverify.search.search_subjects import Doubles, Naive, SkipsThird

ONE_RANK = one_parameter(1, "p0", ())


@pytest.mark.long
def test_each_distinct_violation_is_found_and_shrunk() -> None:
    result = look(Doubles)
    met = identities(result)
    assert len(set(met)) == len(met)
    assert ("unbind_restores_parameters", "hook_left") in met
    names = {name for name, _ in met}
    assert names == {"gradient_equals_reference", "unbind_restores_parameters"}
    by_identity = {
        found.violation.identity: found.scenario for found in result.violations
    }
    assert by_identity["unbind_restores_parameters", "hook_left"] == ONE_RANK
    # Features beyond a plain training step shrink away as well.
    assert [
        feature for s in by_identity.values() for feature in optional_features(s)
    ] == []


@pytest.fixture(scope="module")
def third() -> tuple[SearchResult, Counting, Listening]:
    """Return one search that shrinks a little, its backend and its progress."""
    backend, progress = Counting(), Listening()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(syncverify.search.shrinking, "_MAX_SHRINK_RUNS", 30)
        monkeypatch.setattr(syncverify.search.shrinking, "_MAX_SIMPLER_RUNS", 10)
        result = look(SkipsThird, backend, examples=16, progress=progress)
    return result, backend, progress


@pytest.mark.long
def test_no_scenario_is_played_twice(
    third: tuple[SearchResult, Counting, Listening],
) -> None:
    _, backend, progress = third
    assert max(backend.played.values()) == 1
    simpler = sum(kind == "shrinking" for kind, _, _ in progress.events)
    assert simpler > 0
    # `third` searches 16 examples.
    assert len(backend.played) <= 16 + simpler


@pytest.mark.long
def test_progress_hears_of_every_scenario_and_every_simpler_one(
    third: tuple[SearchResult, Counting, Listening],
) -> None:
    *_, progress = third
    events = progress.events
    played = [count for kind, _, count in events if kind == "played"]
    assert played == list(range(1, 17))
    simpler = [(name, n) for kind, name, n in events if kind == "shrinking"]
    numbered = Counter(identity for identity, _ in simpler)
    assert numbered
    for identity, count in numbered.items():
        assert [n for name, n in simpler if name == identity] == [*range(1, count + 1)]


@pytest.mark.long
def test_progress_hears_of_a_violation_before_the_scenario_after_it(
    third: tuple[SearchResult, Counting, Listening],
) -> None:
    result, _, progress = third
    for entry in result.violations:
        identity = entry.violation.identity
        met = progress.events.index(("found", identity, 1))
        kind, num_violations, _ = next(
            each for each in progress.events[met:] if each[0] != "found"
        )
        assert (kind, bool(num_violations)) == ("played", True)
        assert progress.events.index(("shrunk", identity, 1)) > met
    assert {name for kind, name, _ in progress.events if kind == "shrunk"} == {
        entry.violation.identity for entry in result.violations
    }


@pytest.mark.long
def test_the_first_violation_ends_the_exploration_where_that_is_asked_for() -> None:
    progress = Listening()
    result = look(Doubles, examples=40, progress=progress, stop_at_first=True)
    played = [count for kind, _, count in progress.events if kind == "played"]
    assert played == list(range(1, result.num_examples + 1))
    assert result.num_examples < 40
    met = [name for kind, name, _ in progress.events if kind == "found"]
    assert met == identities(result)
    assert len(met) == 1


class Clock:
    """Seconds pass with runs, and with nothing else."""

    def __init__(self, backend: Counting, seconds_per_run: float) -> None:
        self._backend = backend
        self._seconds_per_run = seconds_per_run

    def monotonic(self) -> float:
        return self._backend.played.total() * self._seconds_per_run


@pytest.mark.long
@pytest.mark.parametrize(("limit", "expected"), [(0.5, 1), (4.5, 5), (1000, 8)])
def test_time_limit_ends_the_search(
    monkeypatch: pytest.MonkeyPatch, limit: float, expected: int
) -> None:
    backend = Counting()
    for module in (syncverify.search.search, syncverify.search.budget):
        monkeypatch.setattr(module, "time", Clock(backend, 1.0))
    result = look(Naive, backend, ranks=1, limit=limit, examples=8)
    assert backend.played.total() <= expected
    assert result.num_examples >= expected
    assert result.seconds == backend.played.total()


def test_few_runs_that_cost_seconds_are_made() -> None:
    """Three to search, and three more to shrink."""
    failing = Failing("gloo", Fault("process_died", (0,), "it dies"))
    result = look(Naive, failing, examples=50)
    assert [cause for _, cause in identities(result)] == ["process_died"]
    assert failing.num_runs <= 6
    assert result.num_examples <= 3
    assert not result.stopped


@dataclass
class Lost(Failing):
    """A backend that can play nothing after its first run."""

    @property
    def is_lost(self) -> bool:
        return self.num_runs > 0


def test_a_backend_that_is_lost_ends_the_search_with_what_was_found() -> None:
    """A later scenario would hang as well, and be blamed in the place of the first."""
    lost = Lost("gloo", Fault("never_returns", (0,), "it hangs"))
    result = look(Naive, lost, examples=50)
    assert identities(result) == [("every_wait_completes", "never_returns")]
    assert (lost.num_runs, result.num_examples) == (1, 1)


@pytest.mark.long
def test_cheap_faults_do_not_end_the_search() -> None:
    failing = Failing("sim", Fault("deadlock", (0,), "it hangs"))
    result = look(Naive, failing, examples=6)
    assert result.num_examples == 6
    assert [found.scenario for found in result.violations] == [ONE_RANK]


@dataclass
class Broken:
    """A backend that is itself at fault, with another message on every call."""

    name: str = "sim"
    num_runs: int = 0

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        self.num_runs += 1
        raise InternalError(f"call {self.num_runs} failed")


@pytest.mark.long
def test_error_of_the_harness_ends_the_search_unchanged() -> None:
    backend = Broken()
    with pytest.raises(InternalError) as caught:
        look(Naive, backend)
    assert str(caught.value) == "call 1 failed"
    assert backend.num_runs == 1


# A hang takes seconds, so a search plays few of them; and a search for the first violation alone.


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "kind"), [("gloo", "deadlock"), ("sim", "never_returns")]
)
def test_a_hang_in_the_smallest_scenario_is_played_once(
    backend: str, kind: Any
) -> None:
    failing = Failing(backend, Fault(kind, (0,), "it hangs"))
    result = look(Naive, failing, examples=50)
    assert [cause for _, cause in identities(result)] == [kind]
    assert (failing.num_runs, result.num_examples) == (1, 1)
    assert result.stopped == "each hang takes seconds"
    assert [found.not_shrunk for found in result.violations] == [""]


@pytest.mark.long
def test_a_time_limit_keeps_a_hang_that_took_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first scenario is played twice, and the limit falls between the two runs."""
    failing = Failing("sim", Fault("never_returns", (0,), "it hangs"))
    monkeypatch.setattr(
        syncverify.search.budget.time, "monotonic", lambda: failing.num_runs
    )
    result = look(Naive, failing, limit=0.5)
    assert identities(result) == [("every_wait_completes", "never_returns")]
    assert result.num_examples == 1


@dataclass
class HangingFrom(Counting):
    """A backend on which scenarios of at least so many ranks, parameters and steps hang."""

    ranks: int = 1
    parameters: int = 1
    steps: int = 1
    num_hangs: int = 0

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        if (
            scenario.mesh.num_ranks < self.ranks
            or len(scenario.parameters) < self.parameters
            or scenario.num_steps < self.steps
        ):
            return super().run(scenario, subject)
        self.num_hangs += 1
        ranks = tuple(RankRun() for _ in range(scenario.mesh.num_ranks))
        return Run(self.name, ranks, Fault("never_returns", (0,), "it hangs"))


@pytest.mark.long
def test_a_hang_is_made_small_by_one_more() -> None:
    hanging = HangingFrom(ranks=2)
    [found] = look(Naive, hanging, examples=50).violations
    assert hanging.num_hangs == 2
    assert found.scenario.mesh.shape == (2,)
    assert len(found.scenario.parameters) == 1
    assert found.scenario.accumulations == (1,)
    assert not found.not_shrunk


@pytest.mark.long
def test_a_hang_of_large_scenarios_alone_is_played_twice_at_most() -> None:
    hanging = HangingFrom(parameters=3, steps=2)
    [found] = look(Naive, hanging, examples=200).violations
    assert hanging.num_hangs <= 2
    assert found.violation.cause == "never_returns"


SETTINGS = Settings(ranks=4, examples=10, seed=0)


class Noting(Failing):
    """A backend on which nothing fails; it notes the scenarios."""

    def __init__(self) -> None:
        super().__init__("fake", None)  # type: ignore[arg-type]
        self.noted: list[Scenario] = []

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        self.noted.append(scenario)
        return super().run(scenario, subject)


def played(by: Any, *progress: Any) -> list[Scenario]:
    backend = Noting()
    by(resolve(Naive), backend, SETTINGS, *progress)
    return list(dict.fromkeys(backend.noted))


@pytest.mark.long
def test_the_first_violation_is_met_in_the_scenarios_of_a_search() -> None:
    assert played(first_met) == played(search, SilentProgress())
