"""Each feature beyond a contract gets one rating, by scenarios of its own."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from syncverify.playing.fake import FakeBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES
from syncverify.scenario.features import optional_features
from syncverify.search.feature_scenarios import scenarios_of
from syncverify.search.observation import (
    Observing,
    RatedFeature,
    features_beyond,
    observe,
)
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_subjects import Naive as PlainSums

PLAN = Observing(num_scenarios=2, num_simpler=3, max_ranks=2)
TWICE = "event=wait_twice"


class Naive(PlainSums):
    """Reduces each gradient in `wait()`: right for plain steps, wrong if called twice."""

    num_waits = 0

    def wait(self) -> None:
        self.num_waits += 1
        super().wait()

    def zero_grad(self) -> None:
        self.num_waits = 0
        super().zero_grad()


class Refuses(Naive):
    def wait(self) -> None:
        if self.num_waits:
            raise RuntimeError("wait() was called already; call zero_grad() first")
        super().wait()


class Crashes(Naive):
    def wait(self) -> None:
        if self.num_waits:
            raise KeyError("gradients")
        super().wait()


class Hangs(Naive):
    def wait(self) -> None:
        if self.num_waits and dist.get_rank() == 0:
            dist.recv(torch.zeros(1), src=1)  # rank 1 sends nothing
        elif not self.num_waits:
            super().wait()


class Remembers(Naive):
    def wait(self) -> None:
        if not self.num_waits:
            super().wait()
        self.num_waits += 1


class Doubles(Remembers):
    """Wrong in plain steps already."""

    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(2)


class Relabels(Naive):
    """Marks a gradient as summed: it gets the placements of its parameter."""

    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if isinstance(parameter.grad, DTensor) and isinstance(parameter, DTensor):
                parameter.grad = DTensor.from_local(
                    parameter.grad.to_local(),
                    parameter.device_mesh,
                    parameter.placements,
                    run_check=False,
                    shape=parameter.shape,
                    stride=parameter.stride(),
                )


def observed(
    subject: type[Any],
    *features: str,
    known: tuple[Any, ...] = (),
    plan: Observing = PLAN,
) -> list[RatedFeature]:
    return list(observe(resolve(subject), SimBackend(), plan, features, known))


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "rating"),
    [
        (Naive, "wrong"),
        (Refuses, "refused"),
        (Crashes, "unclear"),
        (Hangs, "hangs"),
        (Remembers, "right"),
    ],
)
def test_a_feature_gets_the_rating_of_its_worst_scenario(
    subject: type[Any], rating: str
) -> None:
    (twice,) = observed(subject, TWICE)
    assert (twice.feature, twice.rating) == (TWICE, rating)
    assert twice.counts[rating] > 0  # type: ignore[index]  # a rating
    assert rating != "hangs" or twice.counts == {"hangs": 1}, "a hang takes seconds"
    assert (twice.found is None) == (rating in {"right", "refused"})


@pytest.mark.long
def test_a_sum_that_is_marked_partial_is_wrong() -> None:
    """An optimizer's step on it is an operator of DTensor, which sums it once more."""
    plan = replace(PLAN, random_seed=1)
    (marked,) = observed(Naive, "placement=partial", plan=plan)
    assert marked.found.violation.identity == (
        "gradient_equals_reference", "still_partial"
    )  # fmt: skip
    assert [each.rating for each in observed(Relabels, "placement=partial")] == [
        "right"
    ]


@pytest.mark.long
def test_the_scenario_of_a_wrong_feature_is_small_and_has_the_feature() -> None:
    (twice,) = observed(Naive, TWICE, plan=replace(PLAN, num_simpler=20))
    scenario = twice.found.scenario
    assert set(optional_features(scenario)) == {("event", "wait_twice")}
    assert (scenario.mesh.num_ranks, len(scenario.parameters)) == (2, 1)


@pytest.mark.slow
def test_what_is_wrong_in_plain_steps_says_nothing_about_a_feature() -> None:
    (blamed,) = observed(Doubles, "use=twice")
    known = blamed.found.violation.identity
    # Where one rank has zeros, the same mistake looks like a factor.
    scaled = ("gradient_equals_reference", "scaled")
    (excused,) = observed(Doubles, "use=twice", known=(known, scaled))
    assert excused.rating == "not tried"
    assert excused.reason == "plain training steps are violated already"


class Local(Naive):
    capabilities: ClassVar = Capabilities(tensors="local")


class HidesWaits(Naive):
    """Leaves out a second `wait()`, so that the rating would be about this class."""

    not_observed: ClassVar[dict[str, str]] = {TWICE: "the class waits once"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "feature", "backend", "deadline", "reason"),
    [
        (Naive, "use=compiled_region", SimBackend, None, "takes seconds in every process"),
        (Naive, TWICE, FakeBackend, None, "collectives of this backend move no data"),
        (Local, "placement=strided", SimBackend, None, "no scenario of this contract has it"),
        (HidesWaits, TWICE, SimBackend, None, "the class waits once"),
        (Naive, "use=twice", SimBackend, 0.0, "the time limit came first"),
    ],
)  # fmt: skip
def test_a_feature_that_is_not_tried_has_a_reason(
    subject: type[Any], feature: str, backend: Any, deadline: Any, reason: str
) -> None:
    plan = replace(PLAN, deadline=deadline)
    (rated,) = observe(resolve(subject), backend(), plan, [feature])
    assert (rated.rating, rated.reason) == ("not tried", reason)


class RaisesBeforeACallback(Remembers):
    """Raises in a second `wait()`, while a callback of a future has not run."""

    def wait(self) -> None:
        if self.num_waits:
            work = dist.all_reduce(torch.ones(1), async_op=True)
            self.future = work.get_future().then(lambda done: done.value())
            raise RuntimeError("wait() was called already; call zero_grad() first")
        super().wait()


@pytest.mark.slow
def test_a_feature_that_the_backend_does_not_judge_is_not_tried() -> None:
    twice, other = observed(RaisesBeforeACallback, TWICE, "use=twice")
    assert twice.rating == "not tried"
    assert "while a callback of a future has not run" in twice.reason
    assert other.rating == "right"


FIRST_OF_TOPIC = {
    feature.partition("=")[0]: feature for feature in features_beyond(Capabilities())
}


@pytest.mark.long
@pytest.mark.parametrize("feature", FIRST_OF_TOPIC.values())
def test_scenarios_of_a_feature_have_no_other_one(feature: str) -> None:
    listed = scenarios_of(feature, Capabilities(), 4, 0).smallest_first(2)
    assert len(listed) == 2
    allowed = {feature, FEATURES[Feature.of(feature)].needs}
    for scenario in listed:
        names = set(map(str, optional_features(scenario)))
        assert feature in names
        assert names <= allowed


@pytest.mark.long
def test_a_word_is_put_where_it_can_have_an_effect() -> None:
    for seed in range(2):
        feature = "readiness=by_rank"
        listed = scenarios_of(feature, Capabilities(), 4, seed).smallest_first(3)
        assert min(len(scenario.parameters) for scenario in listed) > 1
        feature = "used=not_in_first_micro_batch"
        listed = scenarios_of(feature, Capabilities(), 4, seed).smallest_first(3)
        assert min(max(scenario.accumulations) for scenario in listed) > 1
        for scenario in listed:
            assert len({spec.used for spec in scenario.parameters}) == 2
