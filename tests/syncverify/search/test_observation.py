"""Each feature beyond a contract gets one rating, by scenarios of its own."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from syncverify.backends.fake import FakeBackend
from syncverify.backends.sim import SimBackend
from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES
from syncverify.scenario.features import optional_features
from syncverify.scenario.layout import reduce_axes
from syncverify.search.feature_scenarios import scenarios_of
from syncverify.search.observation import (
    ObservationPlan,
    RatedFeature,
    _observing,
    features_beyond,
    observe,
)
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_subjects import Naive as PlainSums

PLAN = ObservationPlan(max_ranks=2, num_scenarios=2, num_simpler=3, random_seed=0)
TWICE = "event=wait_twice"
RAISED_INDEX_ERROR = ("every_rank_finishes", "raised_IndexError")


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
    plan: ObservationPlan = PLAN,
) -> list[RatedFeature]:
    return list(observe(resolve(subject), SimBackend(), plan, features, known))


@pytest.mark.slow
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


@pytest.mark.slow
def test_one_weakness_does_not_spread_over_the_table() -> None:
    others = ("event=empty_step", "use=twice", "backward=several_roots")
    assert [each.rating for each in observed(Naive, TWICE, *others)] == [
        "wrong", "right", "right", "right",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_sum_that_is_marked_partial_is_wrong() -> None:
    """An optimizer's step on it is an operator of DTensor, which sums it once more."""
    plan = replace(PLAN, random_seed=1)
    (marked,) = observed(Naive, "placement=partial", plan=plan)
    assert marked.found is not None
    assert marked.found.violation.identity == (
        "gradient_equals_reference", "still_partial"
    )  # fmt: skip
    assert [each.rating for each in observed(Relabels, "placement=partial")] == [
        "right"
    ]


@pytest.mark.slow
def test_the_scenario_of_a_wrong_feature_is_small_and_has_the_feature() -> None:
    (twice,) = observed(Naive, TWICE, plan=replace(PLAN, num_simpler=20))
    assert twice.found is not None
    scenario = twice.found.scenario
    assert set(optional_features(scenario)) == {("event", "wait_twice")}
    assert (scenario.mesh.num_ranks, len(scenario.parameters)) == (2, 1)


@pytest.mark.slow
def test_what_is_wrong_in_plain_steps_says_nothing_about_a_feature() -> None:
    (blamed,) = observed(Doubles, "use=twice")
    assert blamed.found is not None
    known = blamed.found.violation.identity
    # Where one rank has zeros, the same mistake looks like a factor.
    scaled = ("gradient_equals_reference", "scaled")
    (excused,) = observed(Doubles, "use=twice", known=(known, scaled))
    assert excused.rating == "not tried"
    assert excused.reason == "plain training steps are violated already"


class CrashesInPlainSteps(Naive):
    """Raises the same error in each call."""

    words = "list index out of range"

    def wait(self) -> None:
        raise IndexError(self.words)


class RefusesPlainSteps(CrashesInPlainSteps):
    words = "expected parameters on one mesh; pass those of one mesh"


@pytest.mark.slow
@pytest.mark.parametrize("subject", [CrashesInPlainSteps, RefusesPlainSteps])
def test_an_error_of_plain_steps_says_nothing_about_a_feature(
    subject: type[Any],
) -> None:
    (excused,) = observed(subject, "use=twice", known=(RAISED_INDEX_ERROR,))
    assert (excused.rating, excused.reason) == (
        "not tried", "plain training steps are violated already"
    )  # fmt: skip


class DoublesOfMany(Remembers):
    """Wrong in plain steps with many parameters."""

    def wait(self) -> None:
        super().wait()
        is_wrong = len(self.parameters) > 3
        for parameter in self.parameters:
            if is_wrong and parameter.grad is not None:
                parameter.grad.mul_(2)


def replaced(feature: str) -> tuple[ObservationPlan, tuple[Any, ...]]:
    """Find a seed of which a scenario says nothing, and enough others say something.

    Returns:
        The plan of that seed, and the identities that are known from plain steps.
    """
    for seed in range(30):
        plan = replace(PLAN, random_seed=seed)
        observing = _observing(feature, resolve(DoublesOfMany), SimBackend(), plan)
        first, most = (
            [bool(run.violations) for _, run in observing._judged(count)]
            for count in (PLAN.num_scenarios, 3 * PLAN.num_scenarios)
        )
        if any(first) and most.count(False) >= PLAN.num_scenarios:
            return plan, tuple(observing.identities(3 * PLAN.num_scenarios))
    raise AssertionError(f"no seed has a scenario of {feature} to replace")


@pytest.mark.slow
def test_a_scenario_that_says_nothing_is_replaced() -> None:
    feature = "use=twice"
    plan, known = replaced(feature)
    (excused,) = observed(DoublesOfMany, feature, known=known, plan=plan)
    assert excused.counts == {"right": PLAN.num_scenarios}


def test_a_rare_feature_is_not_tried_and_says_why() -> None:
    (rare,) = observed(Naive, "use=compiled_region")
    assert (rare.rating, rare.reason) == (
        "not tried", "takes seconds in every process"
    )  # fmt: skip


def test_a_backend_that_moves_no_data_says_nothing_about_a_feature() -> None:
    (twice,) = observe(resolve(Naive), FakeBackend(), PLAN, [TWICE])
    assert (twice.rating, twice.reason) == (
        "not tried", "collectives of this backend move no data"
    )  # fmt: skip


def test_a_feature_that_the_contract_cannot_have_is_not_tried() -> None:
    class Local(Naive):
        capabilities: ClassVar = Capabilities(tensors="local")

    (strided,) = observed(Local, "placement=strided")
    assert strided.reason == "no scenario of this contract has it"


def test_features_of_a_contract_are_not_beyond_it() -> None:
    asked = Capabilities(features=frozenset({"use"}), outside=frozenset({"use=masked"}))
    beyond = features_beyond(asked)
    assert "use=masked" in beyond
    assert "use=twice" not in beyond
    assert TWICE in beyond


class ForgetsInSecondBind(Remembers):
    """Reduces nothing after a second `bind()`."""

    num_binds = 0

    def bind(self) -> None:
        super().bind()
        self.num_binds += 1

    def wait(self) -> None:
        if self.num_binds == 1:
            super().wait()


@pytest.mark.slow
def test_an_event_is_played_before_a_step_that_shows_its_effect() -> None:
    for seed in range(2):
        plan = replace(PLAN, random_seed=seed)
        (rebind,) = observe(
            resolve(ForgetsInSecondBind), SimBackend(), plan, ["event=rebind"]
        )
        assert rebind.rating == "wrong"


@pytest.mark.slow
def test_a_move_is_right_for_a_subject_that_does_nothing_about_it() -> None:
    plan = replace(PLAN, num_scenarios=12)
    (move,) = observe(resolve(Remembers), SimBackend(), plan, ["event=move"])
    assert move.rating == "right", move.found


class HidesWaits(Naive):
    """Leaves out a second `wait()`, so that the rating would be about this class."""

    not_observed: ClassVar[dict[str, str]] = {TWICE: "the class waits once"}


def test_a_feature_that_a_class_does_not_hand_on_is_not_tried() -> None:
    (twice,) = observed(HidesWaits, TWICE)
    assert (twice.rating, twice.reason) == ("not tried", "the class waits once")


@pytest.mark.slow
def test_a_feature_that_comes_after_the_time_limit_says_so() -> None:
    plan = replace(PLAN, deadline=0.0)
    (late,) = observe(resolve(Naive), SimBackend(), plan, ["use=twice"])
    assert (late.rating, late.reason) == ("not tried", "the time limit came first")


class RaisesBeforeACallback(Remembers):
    """Raises in a second `wait()`, while a callback of a future has not run."""

    def wait(self) -> None:
        if self.num_waits:
            work = dist.all_reduce(torch.ones(1), async_op=True)
            assert work is not None
            self.future = work.get_future().then(lambda done: done.value())
            raise RuntimeError("wait() was called already; call zero_grad() first")
        super().wait()


@pytest.mark.slow
def test_a_feature_that_the_backend_does_not_judge_is_not_tried() -> None:
    twice, other = observed(RaisesBeforeACallback, TWICE, "use=twice")
    assert twice.rating == "not tried"
    assert "while a callback of a future has not run" in twice.reason
    assert other.rating == "right"


@pytest.mark.slow
@pytest.mark.parametrize("event", ["freeze", "unfreeze"])
def test_an_event_that_freezes_concerns_a_reduced_parameter(event: str) -> None:
    listed = scenarios_of(f"event={event}", Capabilities(), 4, 0).smallest_first(3)
    assert len(listed) == 3
    for scenario in listed:
        assert event in scenario.events[1:]
        assert any(
            step_plan.may_freeze(scenario, spec) and reduce_axes(scenario.mesh, spec)
            for spec in scenario.parameters
        )


FIRST_OF_TOPIC = {
    feature.partition("=")[0]: feature for feature in features_beyond(Capabilities())
}


@pytest.mark.slow
@pytest.mark.parametrize("feature", FIRST_OF_TOPIC.values())
def test_scenarios_of_a_feature_have_no_other_one(feature: str) -> None:
    listed = scenarios_of(feature, Capabilities(), 4, 0).smallest_first(2)
    assert len(listed) == 2
    allowed = {feature, FEATURES[Feature.of(feature)].needs}
    for scenario in listed:
        names = set(map(str, optional_features(scenario)))
        assert feature in names
        assert names <= allowed


@pytest.mark.slow
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
