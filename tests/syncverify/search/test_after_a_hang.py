"""A hang takes seconds: a search plays few of them."""

from dataclasses import dataclass
from typing import Any

import pytest

from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Fault, RankRun, Run
from tests.syncverify.search.search_searches import Counting, Failing, identities, look
from tests.syncverify.search.search_subjects import Naive


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
