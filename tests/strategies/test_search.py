"""The search: deterministic, thrifty, and honest about what it met."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

import strategies.judge
import strategies.search
from strategies.search import SearchResult, search
from syncverify.backends.sim import SimBackend
from syncverify.errors import InternalError
from syncverify.features import ALL_BEYOND
from syncverify.properties import check
from syncverify.run import Fault, RankRun, Run
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.subject import Subject, resolve

ONE_RANK = Scenario(
    MeshSpec((1,), ("dp",)), (ParameterSpec("p0", (), ("R",)),), (1,), 2**20
)


class Naive:
    """Sums DTensors over the axes on which they are replicated, one by one."""

    outside = ALL_BEYOND  # plain training steps are all that it is for

    def __init__(self, groups: list[list[nn.Parameter]], mb: float, count: int) -> None:
        self.parameters = [parameter for group in groups for parameter in group]

    def bind(self) -> None: ...

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None and hasattr(parameter, "device_mesh"):
                self.reduce(parameter)

    def reduce(self, parameter: Any) -> None:
        for axis, placement in enumerate(parameter.placements):
            if placement.is_replicate():
                group = parameter.device_mesh.get_group(axis)
                dist.all_reduce(parameter.grad.to_local(), group=group)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None: ...


class Doubles(Naive):
    """Two defects at once: every gradient is doubled, and one hook stays."""

    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(2)

    def unbind(self) -> None:
        trainable = next(p for p in self.parameters if p.requires_grad)
        trainable.register_post_accumulate_grad_hook(lambda p: None)


class SkipsThird(Naive):
    """Forgets to reduce the third parameter."""

    def reduce(self, parameter: Any) -> None:
        if not any(parameter is third for third in self.parameters[2:3]):
            super().reduce(parameter)


@dataclass
class Counting:
    """The sim backend, and how often it played each scenario."""

    name: str = "sim"
    played: Counter[Scenario] = field(default_factory=Counter)

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        self.played[scenario] += 1
        return SimBackend().run(scenario, subject)


@dataclass
class Failing:
    """A backend on which every run ends in the same fault."""

    name: str
    fault: Fault
    num_runs: int = 0

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        self.num_runs += 1
        ranks = tuple(RankRun() for _ in range(scenario.mesh.num_ranks))
        return Run(self.name, ranks, self.fault)


@dataclass
class Listening:
    said: list[tuple[str, object, int]] = field(default_factory=list)

    def played(self, num_examples: int, num_violations: int) -> None:
        self.said.append(("played", num_violations, num_examples))

    def shrinking(self, identity: tuple[str, str], num_runs: int) -> None:
        self.said.append(("shrinking", identity, num_runs))


def look(
    subject: Any,
    backend: Any = None,
    *,
    seed: int = 0,
    examples: int = 20,
    ranks: int = 2,
    limit: float | None = None,
    progress: Listening | None = None,
) -> SearchResult:
    return search(
        resolve(subject),
        backend or SimBackend(),
        max_ranks=ranks,
        num_examples=examples,
        random_seed=seed,
        time_limit_seconds=limit,
        progress=progress or Listening(),
    )


def identities(result: SearchResult) -> list[tuple[str, str]]:
    return [found.violation.identity for found in result.found]


@pytest.mark.slow
def test_right_subject_has_no_violation() -> None:
    result = look(Naive, examples=40)
    assert result.found == []
    assert result.num_examples == 40
    assert sum(result.coverage.table()["ranks"].values()) == 40


@pytest.mark.slow
def test_same_seed_same_result() -> None:
    first, second = look(Doubles, seed=5), look(Doubles, seed=5)
    assert first.found == second.found
    assert first.coverage.table() == second.coverage.table()


@pytest.mark.slow
def test_other_seed_other_scenarios() -> None:
    tables = [look(Naive, seed=seed).coverage.table() for seed in (1, 2)]
    assert tables[0] != tables[1]


@pytest.mark.slow
def test_each_distinct_violation_is_found_and_shrunk() -> None:
    result = look(Doubles)
    met = identities(result)
    assert len(set(met)) == len(met)
    assert ("unbind_restores_parameters", "hook_left") in met
    names = {name for name, _ in met}
    assert names == {
        "gradient_equals_reference",
        "unreduced_stay_local",
        "unbind_restores_parameters",
    }
    by_identity = {found.violation.identity: found.scenario for found in result.found}
    assert by_identity["unbind_restores_parameters", "hook_left"] == ONE_RANK


@pytest.fixture(scope="module")
def third() -> tuple[SearchResult, Counting, Listening]:
    """One search that has to shrink, and what it did for that."""
    backend, progress = Counting(), Listening()
    result = look(SkipsThird, backend, examples=60, progress=progress)
    return result, backend, progress


@pytest.mark.slow
def test_a_defect_of_the_third_parameter_shrinks_to_three(
    third: tuple[SearchResult, Counting, Listening],
) -> None:
    shrunk = {found.violation.identity: found.scenario for found in third[0].found}[
        "gradient_equals_reference", "rank_contribution_missing"
    ]
    assert len(shrunk.parameters) == 3
    assert shrunk.mesh.shape == (2,)
    assert shrunk.accumulations == (1,)
    assert [spec.global_shape for spec in shrunk.parameters] == [(), (), ()]


def test_no_scenario_is_played_twice(
    third: tuple[SearchResult, Counting, Listening],
) -> None:
    _, backend, progress = third
    assert max(backend.played.values()) == 1
    simpler = sum(kind == "shrinking" for kind, _, _ in progress.said)
    assert simpler > 0
    assert len(backend.played) <= 60 + simpler


def test_progress_is_told_of_every_scenario_and_every_simpler_one(
    third: tuple[SearchResult, Counting, Listening],
) -> None:
    said = third[2].said
    played = [count for kind, _, count in said if kind == "played"]
    assert played == list(range(1, 61))
    simpler = [(what, n) for kind, what, n in said if kind == "shrinking"]
    numbered = Counter(identity for identity, _ in simpler)
    assert numbered
    for identity, count in numbered.items():
        assert [n for what, n in simpler if what == identity] == [*range(1, count + 1)]


@pytest.mark.slow
def test_the_reported_violation_is_that_of_the_reported_scenario() -> None:
    for found in look(Doubles).found:
        again = look_at(Doubles, found.scenario)
        assert found.violation in again


def look_at(subject: Any, scenario: Scenario) -> list[Any]:
    resolved = resolve(subject)
    run = SimBackend().run(scenario, resolved)
    return check(scenario, run, resolved.capabilities)


class Clock:
    """Seconds pass with runs, and with nothing else."""

    def __init__(self, backend: Counting, seconds_per_run: float) -> None:
        self._backend = backend
        self._seconds_per_run = seconds_per_run

    def monotonic(self) -> float:
        return self._backend.played.total() * self._seconds_per_run


@pytest.mark.parametrize(("limit", "expected"), [(0.5, 1), (4.5, 5), (1000, 20)])
def test_time_limit_ends_the_search(
    monkeypatch: pytest.MonkeyPatch, limit: float, expected: int
) -> None:
    backend = Counting()
    for module in (strategies.search, strategies.judge):
        monkeypatch.setattr(module, "time", Clock(backend, 1.0))
    result = look(Naive, backend, ranks=1, limit=limit)
    assert backend.played.total() <= expected
    assert result.num_examples >= expected
    assert result.seconds == backend.played.total()


def test_time_limit_ends_shrinking_with_what_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = Counting()
    for module in (strategies.search, strategies.judge):
        monkeypatch.setattr(module, "time", Clock(backend, 1.0))
    result = look(Doubles, backend, ranks=1, limit=2.5)
    assert backend.played.total() == 3
    assert ("unbind_restores_parameters", "hook_left") in identities(result)


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("gloo", "deadlock"), ("gloo", "process_died"), ("sim", "never_returns")],
)
def test_few_runs_that_cost_seconds_are_made(backend: str, kind: Any) -> None:
    """Three to search, and three more to shrink."""
    failing = Failing(backend, Fault(kind, (0,), "it hangs"))
    result = look(Naive, failing, examples=50)
    assert [cause for _, cause in identities(result)] == [kind]
    assert failing.num_runs <= 6
    assert result.num_examples <= 3


def test_cheap_faults_do_not_end_the_search() -> None:
    failing = Failing("sim", Fault("deadlock", (0,), "it hangs"))
    result = look(Naive, failing, examples=50)
    assert result.num_examples == 50
    assert [found.scenario for found in result.found] == [ONE_RANK]


@dataclass
class Broken:
    """A backend with a fault of its own, different on every call."""

    name: str = "sim"
    num_runs: int = 0

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        self.num_runs += 1
        raise InternalError(f"call {self.num_runs} failed")


def test_error_of_the_harness_ends_the_search_unchanged() -> None:
    backend = Broken()
    with pytest.raises(InternalError) as caught:
        look(Naive, backend)
    assert str(caught.value) == "call 1 failed"
    assert backend.num_runs == 1
