"""The simulated machine and real processes agree bit for bit, or the harness is wrong.

A thousand scenarios, in an hour of one core:

pytest tests/parity --hypothesis-profile=nightly
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, seed, settings

from syncverify.judge.decoding import same_values
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.features import without_clear_errors
from syncverify.scenario.scenario import Scenario
from syncverify.strategies import scenarios
from syncverify.subjects.subject import resolve
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import RankRun, Run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gloo() -> Iterator[GlooBackend]:
    opened = GlooBackend()
    yield opened
    opened.close()


def places(rank_run: RankRun) -> list[tuple[str, int, int | None]]:
    return [(o.point, o.step, o.micro_batch) for o in rank_run.observations]


def same(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    if left is None or right is None:
        return left is right
    form, other_form = ((each.dtype, each.shape) for each in (left, right))
    return form == other_form and same_values(left, right)


def collectives(rank_run: RankRun) -> list[tuple[object, ...]]:
    """Everything that the trace says, up to how storages are numbered."""
    return [
        (e.moment, e.ranks, e.sequence, e.signature, e.parameters, e.source)
        for e in rank_run.trace
        if isinstance(e, CollectiveLaunch)
    ]


def assert_equal(simulated: Run, real: Run) -> None:
    assert simulated.fault is None
    assert real.fault is None
    for ours, theirs in zip(simulated.ranks, real.ranks, strict=True):
        assert places(ours) == places(theirs)
        for one, other in zip(ours.observations, theirs.observations, strict=True):
            assert one.gradients.keys() == other.gradients.keys()
            for name, gradient in one.gradients.items():
                assert same(gradient, other.gradients[name]), (one.point, name)
        assert collectives(ours) == collectives(theirs)
        assert ours.leftovers == theirs.leftovers


def compare(
    name: str, num_scenarios: int, gloo: GlooBackend, max_ranks: int = 4
) -> None:
    subject = resolve(name)
    # Sums of three real numbers depend on their order, and rings have another one.
    exact = subject.capabilities.outside | {"module"}
    # Where a feature may be refused, both may raise and leave off at different places.
    capabilities = without_clear_errors(replace(subject.capabilities, outside=exact))
    reductions = 0

    @seed(20_240_601)
    @settings(max_examples=num_scenarios)
    @given(scenarios(max_ranks=max_ranks, capabilities=capabilities))
    def play(scenario: Scenario) -> None:
        nonlocal reductions
        simulated = SimBackend().run(scenario, subject)
        assert_equal(simulated, gloo.run(scenario, subject))
        reductions += sum(len(collectives(rank_run)) for rank_run in simulated.ranks)

    play()
    assert reductions > num_scenarios  # or there was nothing to disagree on


@pytest.mark.long(20)
def test_synchronizer_has_equal_gradients_on_both(gloo: GlooBackend) -> None:
    compare("synchronizer", 50, gloo)


@pytest.mark.long
def test_ddp_has_equal_gradients_on_both(gloo: GlooBackend) -> None:
    compare("ddp", 10, gloo)


@pytest.mark.nightly
@pytest.mark.parametrize("max_ranks", [2, 4])
@pytest.mark.parametrize(
    ("name", "num_scenarios"), [("synchronizer", 350), ("ddp", 150)]
)
def test_a_thousand_scenarios_have_equal_gradients_on_both(
    name: str, num_scenarios: int, max_ranks: int, gloo: GlooBackend
) -> None:
    compare(name, num_scenarios, gloo, max_ranks)
