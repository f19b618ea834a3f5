"""A change that costs more than the unchanged subject is no fix."""

from dataclasses import replace

import pytest

from syncverify.explain.repair.comparison import Measured, Style, regression
from syncverify.explain.repair.cost import Cost
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

SPEC = ParameterSpec("p0", (3,), ("R",))
SIX = tuple(replace(SPEC, name=f"p{n}") for n in range(6))
# Two ranks and one step: 12 reductions of parameters, 6 of buckets, 144 bytes, 96 of them early.
SCENARIO = Scenario(MeshSpec((2,), ("dp",)), SIX, (1,), 24)
BUCKETS = Cost(
    launches=6,
    reductions=6,
    bursts=6,
    reduced_bytes=144,
    early_bytes=144,
    followed=500,
    beside=500,
    waited=96.0,
    peak_bytes=400,
)
ALONE = replace(BUCKETS, launches=12, reductions=12, bursts=12)


def of(cost: Cost, *, is_right: bool, reaches_end: bool = True) -> list[Measured]:
    found = set() if is_right else {("a_property", "a_cause")}
    return [Measured(SCENARIO, found, reaches_end, cost)] * 3


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (BUCKETS, None),
        (ALONE, "more launches"),
        (replace(BUCKETS, bursts=12), "launches that were together come one by one"),
        (replace(BUCKETS, reduced_bytes=288), "more bytes are reduced"),
        (replace(BUCKETS, early_bytes=0), "launches come after backward"),
        (replace(BUCKETS, beside=0), "less runs beside the reductions"),
        (replace(BUCKETS, peak_bytes=528), None),  # 64 more on each rank
        (replace(BUCKETS, peak_bytes=529), "more memory"),
    ],
)
def test_a_scenario_that_was_right_keeps_every_number(
    changed: Cost, words: str | None
) -> None:
    assert regression(of(BUCKETS, is_right=True), [changed] * 3) == words


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (BUCKETS, None),
        (ALONE, "more launches than the bytes took before"),
        (replace(BUCKETS, bursts=12), "launches come one by one"),
        (replace(BUCKETS, early_bytes=95), "launches come after backward"),
        # The last bucket may stay for `wait()`.
        (replace(BUCKETS, early_bytes=96), None),
        (replace(BUCKETS, beside=250), "less runs beside the reductions"),
        # Of three buckets the last may be launched at the end of backward.
        (replace(BUCKETS, waited=144.0), None),
        # 64 more on each rank.
        (replace(BUCKETS, peak_bytes=528), None),
        (replace(BUCKETS, peak_bytes=529), "more memory"),
    ],
)
def test_a_scenario_that_was_wrong_keeps_launches_overlap_and_memory(
    changed: Cost, words: str | None
) -> None:
    assert regression(of(BUCKETS, is_right=False), [changed] * 3) == words


def test_what_was_not_sent_before_may_be_sent_in_buckets() -> None:
    last_missing = replace(BUCKETS, reductions=4, bursts=4, reduced_bytes=96)
    before = of(last_missing, is_right=False)
    assert regression(before, [BUCKETS] * 3) is None
    assert regression(before, [ALONE] * 3) is not None


def test_a_subject_that_sends_each_parameter_alone_may_go_on() -> None:
    some_missing = replace(ALONE, reductions=6, bursts=6, reduced_bytes=72)
    before = of(some_missing, is_right=False)
    assert Style.of(before) == Style(launches_alone=True, bursts_alone=True)
    assert regression(before, [ALONE] * 3) is None


def test_a_subject_that_raises_in_its_second_step_shows_its_buckets_in_the_first() -> (
    None
):
    """Otherwise one bucket a parameter, of which none can be left half ready, is a fix."""
    two_steps = replace(SCENARIO, accumulations=(1, 1))
    before = [Measured(two_steps, False, False, BUCKETS)] * 3
    twice = replace(BUCKETS, launches=12, reductions=12, bursts=12, reduced_bytes=288)
    assert Style.of(before) == Style(launches_alone=False, bursts_alone=False)
    assert regression(before, [twice] * 3) is None
    alone = replace(twice, launches=24, reductions=24, bursts=24)
    assert regression(before, [alone] * 3) == "more launches than the program needs"
