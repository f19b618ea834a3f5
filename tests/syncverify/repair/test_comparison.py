"""A change that costs more than the unchanged subject is no fix."""

from dataclasses import replace

import pytest

from syncverify.repair.comparison import Measured, Style, is_unchanged, regression
from syncverify.repair.cost import Cost
from syncverify.repair.needs import Needs
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
    return [Measured(SCENARIO, is_right, reaches_end, cost)] * 3


def test_needs_of_parameters_and_of_buckets() -> None:
    assert Needs.of(SCENARIO) == Needs(12, 6, 144, 96, pytest.approx(2 / 3))
    whole = replace(SCENARIO, bucket_cap_bytes=1 << 20, accumulations=(1, 1))
    assert Needs.of(whole) == Needs(24, 4, 288, 0, 1.0)


# Five scalars over two axes, four in the first bucket: 16 of 20 bytes after four gradients.
SCALARS = tuple(ParameterSpec(f"p{n}", (), ("R", "R")) for n in range(5))
TWO_AXES = Scenario(MeshSpec((2, 2), ("dp", "tp")), SCALARS, (2,), 16)
TOO_EARLY = Cost(
    launches=56,
    reductions=56,
    bursts=28,
    reduced_bytes=704,
    early_bytes=704,
    followed=2688,
    beside=1344,
    waited=520.0,
    peak_bytes=560,
)


@pytest.mark.parametrize(
    ("share", "words"), [(0.89, None), (1.0, "launches come late in backward")]
)
def test_a_bucket_over_two_axes_is_launched_when_it_is_full(
    share: float, words: str | None
) -> None:
    assert Needs.of(TWO_AXES).full_at == pytest.approx(0.84)
    full = replace(
        TOO_EARLY, launches=16, reductions=16, bursts=8, reduced_bytes=160,
        early_bytes=160, followed=256, beside=128, waited=160 * share, peak_bytes=288,
    )  # fmt: skip
    wrong = [Measured(TWO_AXES, False, True, TOO_EARLY)] * 3
    assert regression(wrong, [full] * 3) == words


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


def test_a_subject_that_hangs_is_compared_with_what_is_needed() -> None:
    before = of(Cost(), is_right=False, reaches_end=False)
    assert regression(before, [ALONE] * 3) is None
    more = replace(ALONE, reductions=13)
    assert regression(before, [more] * 3) == "more launches than the program needs"


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


def test_a_part_of_a_step_tells_no_style() -> None:
    part = replace(BUCKETS, reductions=1, bursts=1, reduced_bytes=143)
    before = of(part, is_right=False, reaches_end=False)
    assert Style.of(before) == Style(None, None)


def test_two_scenarios_are_too_few() -> None:
    before = of(BUCKETS, is_right=True)[:2]
    assert regression(before, [BUCKETS] * 2) == "too few scenarios to compare"


def test_no_cost_is_asked_for_after_one_that_is_worse() -> None:
    played = iter([BUCKETS, ALONE, BUCKETS])
    assert regression(of(BUCKETS, is_right=True), played) == "more launches"
    assert [*played] == [BUCKETS]


def test_one_rank_says_nothing() -> None:
    lone = replace(SCENARIO, mesh=MeshSpec((1,), ("dp",)))
    before = [Measured(lone, True, True, Cost())] * 9  # as the class says
    assert regression(before, [Cost()] * 9) == "too few scenarios to compare"


def test_a_change_that_leaves_all_costs_is_reported() -> None:
    before = of(BUCKETS, is_right=True)
    assert is_unchanged(before, [BUCKETS] * 3)
    assert not is_unchanged(before, [replace(BUCKETS, launches=5)] * 3)


# A sixth of the bytes is rounded down to nothing, in the launches that come last.
ROUNDED = replace(ALONE, reduced_bytes=120, early_bytes=120, waited=92.0)


@pytest.mark.parametrize(
    ("waited", "words"), [(116.0, None), (117.0, "launches come late in backward")]
)
def test_bytes_that_fill_the_same_launches_do_not_make_them_late(
    waited: float, words: str | None
) -> None:
    wrong = of(ROUNDED, is_right=False)
    filled = replace(ALONE, waited=waited)
    assert filled.delay > ROUNDED.delay
    assert regression(wrong, [filled] * 3) == words


def test_launches_without_a_byte_may_get_some() -> None:
    nothing = replace(ALONE, reduced_bytes=0, early_bytes=0, followed=0, waited=0.0)
    wrong = [*of(BUCKETS, is_right=True), Measured(SCENARIO, False, True, nothing)]
    after = [BUCKETS] * 3
    assert regression(wrong, [*after, replace(ALONE, waited=80.0)]) is None
    more = replace(ALONE, launches=13, reductions=13, waited=80.0)
    assert (
        regression(wrong, [*after, more]) == "more launches than the bytes took before"
    )
