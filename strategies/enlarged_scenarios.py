"""Scenarios with one large number: of parameters, elements, buckets, ranks, steps, micro-batches.

Everything else becomes small, so that a large scenario costs a few usual ones.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import (
    EVENTS,
    FAILING,
    HUGE,
    MANY,
    PLAIN,
    TABLE,
    VAST,
)
from syncverify.scenario.features import features_outside
from syncverify.scenario.layout import local_bytes, reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import REPLICATE, ParameterSpec, is_strided, num_pieces
from syncverify.strategies.bucket_caps import cap_within
from syncverify.strategies.word_choices import allowed_words

# Not one choice among many: Hypothesis draws large indices unevenly.
_IS_LARGE = st.sampled_from([*[False] * (TABLE["size"].one_in - 1), True])
_MAX_PARAMETERS_BESIDE = 3
_MOST_RANKS = 8
# At and beside widths of masks and of chunks. Powers of two leave no rest, others do. Below
# `MANY`, parameters are few enough for several steps of several micro-batches.
_NUMBERS = {
    "many parameters": st.sampled_from((9, 12, 17, MANY["parameters"], 33, 65, 64, 70)),
    "many elements": st.sampled_from((MANY["elements"], 1025, 4099, 4096, 5000)),
    "many steps": st.integers(MANY["steps"], 10),
    "many micro-batches": st.sampled_from((MANY["micro-batches"], 9, 17, 16)),
    "huge parameter": st.sampled_from(
        (HUGE + 1, HUGE, HUGE + 17, 2 * HUGE + 3) * 3 + (VAST + 5, 2**20, 2**21)
    ),
    "vast parameter": st.sampled_from((VAST + 5, VAST, 2**20, 2**20 + 3)),
    # Three hundred take seconds, and so do two million elements.
    "many buckets": st.sampled_from(
        (MANY["buckets"], 18, 33, 20, 24, 40, 65, 34) * 4 + (129, 129, 257, 300)
    ),
    "many ranks": st.sampled_from((MANY["ranks"], 6, 7, _MOST_RANKS)),
    "unequal axes": st.sampled_from((6, _MOST_RANKS)),
    # A step takes two hundredths of a second.
    "long training": st.sampled_from(
        (MANY["long training"], 17, 13, 24, 12, 40, 12, 150)
    ),
}
# Weights of the costly sizes, beside `_USUAL_WEIGHT` of all others: a scenario with a huge
# parameter or many buckets takes a second. A vast parameter comes as a huge one, unequal axes
# come with many ranks, and a long training comes as a last word.
_WEIGHTS = {
    "huge parameter": 1,
    "vast parameter": 0,
    "many buckets": 1,
    "many ranks": 2,
    "unequal axes": 0,
    "long training": 0,
}
_USUAL_WEIGHT = 5
_OF_MANY_RANKS = ("many ranks", "unequal axes")
_ONE_STEP = ("many parameters", *_WEIGHTS)


@st.composite
def enlarged_scenarios(
    draw: st.DrawFn,
    scenario: Scenario,
    *,
    max_ranks: int = 1,
    size: str | None = None,
    capabilities: Capabilities,
) -> Scenario:
    """Return a scenario itself, or one time out of twelve one with a large number.

    A few parameters more than usual come with several steps, and with all micro-batches.

    Shrinks toward the scenario itself.

    Args:
        draw: Draws from a strategy.
        scenario: The scenario, of usual size.
        max_ranks: Largest usual number of ranks.
        size: Value of the topic `size` that each scenario gets; None for one out of twelve.
        capabilities: Contract that the scenario keeps.
    """
    sizes = _sizes(capabilities, has_many_ranks=max_ranks >= MANY["ranks"] - 1)
    if scenario.module != PLAIN:
        return scenario  # a module has its own parameters, and takes longer
    if size is None:
        if sizes is None or not draw(_IS_LARGE):
            return scenario
        size = draw(sizes)
    small, number = _with_a_sum(scenario), draw(_NUMBERS[size])
    if size == "many parameters" and number < MANY["parameters"]:
        small = _twice(small)
    elif size in _ONE_STEP:
        small = _in_fewest_steps(small, capabilities)
    large = _ENLARGE[size](small, number)
    large = replace(
        large,
        bucket_cap_bytes=cap_within(
            large.bucket_cap_bytes, large.mesh, large.parameters, capabilities
        ),
    )
    return scenario if features_outside(large, capabilities) else large


def with_many_ranks(scenario: Scenario) -> Scenario:
    """Give a scenario of one step on four ranks five ranks, six or eight.

    It takes no draw. Only short scenarios change, for many ranks cost much, and only those that
    reduce a parameter. The mesh decides the number, so that shrinking keeps it.

    Returns:
        The changed scenario, or the scenario itself.
    """
    mesh = scenario.mesh
    if mesh.num_ranks != MANY["ranks"] - 1 or scenario.num_steps > 1:
        return scenario
    if not reduce_axes(mesh, _chosen(scenario)):
        return scenario
    others = _MOST_RANKS if 1 not in mesh.shape else MANY["ranks"] + 1
    number = MANY["ranks"] if len(mesh.shape) == 1 else others
    return _with_ranks(_without_late_events(scenario), number)


def with_long_training(scenario: Scenario) -> Scenario:
    """Repeat a short step on two ranks a dozen times and more.

    It takes no draw. Only cheap steps that reduce a parameter change. The parameters decide the
    number, so that shrinking keeps it.

    Returns:
        The changed scenario, or the scenario itself.
    """
    is_cheap = scenario.mesh.num_ranks == 2 and scenario.accumulations in {(1,), (2,)}
    if not is_cheap or not reduce_axes(scenario.mesh, _chosen(scenario)):
        return scenario
    number = MANY["long training"] if len(scenario.parameters) % 2 else 17
    return _with_long_training(scenario, number)


@functools.cache
def _sizes(
    capabilities: Capabilities, *, has_many_ranks: bool
) -> st.SearchStrategy[str] | None:
    """Generate values of the topic `size`; None if the contract leaves none."""
    left = allowed_words("size", capabilities=capabilities)
    if not has_many_ranks:
        left = [size for size in left if size not in _OF_MANY_RANKS]
    weighted = [[size] * _WEIGHTS.get(size, _USUAL_WEIGHT) for size in left]
    return st.sampled_from([*itertools.chain(*weighted)]) if left else None


def _with_parameters(scenario: Scenario, number: int) -> Scenario:
    """Add copies of one parameter."""
    copied = replace(_chosen(scenario), use=PLAIN)
    places = range(len(scenario.parameters), number + 1)
    added = [replace(copied, name=f"p{place}") for place in places]
    return replace(
        scenario,
        parameters=(*scenario.parameters, *added),
        # As many of them share a bucket as the cap is worth of the few.
        bucket_cap_bytes=scenario.bucket_cap_bytes * number,
    )


def _in_fewest_steps(scenario: Scenario, capabilities: Capabilities) -> Scenario:
    """Keep as few steps as the contract allows, one if it can, of few micro-batches."""
    numbers = range(1, scenario.num_steps + 1)
    fewest = next(n for n in numbers if capabilities.covers("steps", str(n)))
    short = replace(
        scenario,
        accumulations=(min(scenario.accumulations),) * fewest,
        events=_unless_plain(scenario.events[:fewest]),
    )
    return _without_late_events(short)


def _without_late_events(scenario: Scenario) -> Scenario:
    """Make the last step plain if its own gradients do not show its event."""
    *before, last = scenario.events or (PLAIN,)
    if EVENTS[last].shows_later or not EVENTS[last].has_backward or last == FAILING:
        last = PLAIN
    return replace(scenario, events=_unless_plain((*before, last)))


def _unless_plain(events: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out the events of steps where all are plain, as a scenario asks for it."""
    return events if {*events} - {PLAIN} else ()


def _twice(scenario: Scenario) -> Scenario:
    """Repeat the step of a scenario that has one, without its event."""
    if scenario.num_steps > 1:
        return scenario
    return replace(
        scenario,
        accumulations=scenario.accumulations * 2,
        events=(*scenario.events, PLAIN) if scenario.events else (),
    )


def _with_elements(scenario: Scenario, number: int) -> Scenario:
    """Lengthen the first dim of one parameter."""
    chosen = _chosen(scenario)
    # A Hessian of a thousand elements has a million.
    large = replace(chosen, global_shape=_long(scenario, chosen, number), use=PLAIN)
    listed = tuple(large if spec is chosen else spec for spec in scenario.parameters)
    return replace(scenario, parameters=listed)


def _with_huge_parameter(scenario: Scenario, number: int) -> Scenario:
    """Lengthen the first dim of one parameter, with few parameters beside it."""
    large = _with_elements(_with_few_parameters(scenario), number)
    if number % 2 == 0:
        return large
    # An odd number leaves room for all of them in one bucket.
    room = sum(local_bytes(large.mesh, spec, 0) for spec in large.trainable)
    return replace(large, bucket_cap_bytes=max(large.bucket_cap_bytes, room))


def _with_buckets(scenario: Scenario, number: int) -> Scenario:
    """Add copies of one parameter, each of which fills a bucket."""
    chosen, mesh = _chosen(scenario), scenario.mesh
    if not local_bytes(mesh, chosen, 0):
        filled = replace(chosen, global_shape=_long(scenario, chosen, 1))
        listed = (filled if spec is chosen else spec for spec in scenario.parameters)
        scenario, chosen = replace(scenario, parameters=tuple(listed)), filled
    many = _with_parameters(scenario, number)
    return replace(many, bucket_cap_bytes=max(1, local_bytes(mesh, chosen, 0)))


def _with_ranks(scenario: Scenario, number: int) -> Scenario:
    """Lengthen a mesh axis over which a parameter is summed, if one is."""
    mesh = scenario.mesh
    if any(any(map(is_strided, spec.placements or ())) for spec in scenario.parameters):
        return scenario  # a strided shard has to be even
    summed = reduce_axes(mesh, _chosen(scenario))
    axis = summed[0] if summed else mesh.shape.index(max(mesh.shape))
    others = math.prod(mesh.shape) // mesh.shape[axis]
    shape = [*mesh.shape] if number % others == 0 else [1] * len(mesh.shape)
    shape[axis] = number // math.prod(shape[:axis] + shape[axis + 1 :])
    return replace(scenario, mesh=replace(mesh, shape=tuple(shape)))


def _with_unequal_axes(scenario: Scenario, number: int) -> Scenario:
    """Lengthen an axis, and sum a parameter more over another one."""
    large = _with_ranks(scenario, number)
    if large is scenario:
        return scenario
    summed = [s for s in large.trainable if len(reduce_axes(large.mesh, s)) == 1]
    for spec in summed[:1]:
        across = (spec.placements or ())[::-1]
        name = f"p{len(large.parameters)}"
        other = replace(spec, name=name, placements=across, use=PLAIN)
        large = replace(large, parameters=(*large.parameters, other))
    return large


def _with_a_sum(scenario: Scenario) -> Scenario:
    """Replicate one parameter where ranks sum none: a number of what nothing sums shows little."""
    chosen = _chosen(scenario)
    if scenario.mesh.num_ranks == 1 or reduce_axes(scenario.mesh, chosen):
        return scenario
    placed = (REPLICATE,) * len(scenario.mesh.shape)
    listed = (
        replace(spec, placements=placed) if spec is chosen else spec
        for spec in scenario.parameters
    )
    return replace(scenario, parameters=tuple(listed))


def _chosen(scenario: Scenario) -> ParameterSpec:
    """Return a trainable parameter, which is reduced if any is, and used by each loss."""
    trainable = [spec for spec in scenario.parameters if spec.requires_grad]
    reduced = [spec for spec in trainable if reduce_axes(scenario.mesh, spec)]
    used = [spec for spec in reduced if spec.used == TABLE["used"].plain_word]
    return (used or reduced or trainable)[0]


def _long(scenario: Scenario, spec: ParameterSpec, numel: int) -> tuple[int, ...]:
    """Return a shape with as many dims as a parameter has, and at least `numel` elements."""
    first, *others = spec.global_shape or (1,)

    def pieces(dim: int) -> int:
        given = spec.placements
        return 1 if given is None else num_pieces(scenario.mesh, given, dim)

    # A dim that has even shards keeps them, also an empty one.
    others = [size or pieces(dim) for dim, size in enumerate(others, start=1)]
    length = math.ceil(numel / math.prod(others))
    if first % pieces(0) == 0:
        length = math.ceil(length / pieces(0)) * pieces(0)
    return (length, *others)


def _with_steps(scenario: Scenario, number: int) -> Scenario:
    """Repeat the steps, with few parameters; their events come once."""
    counts = itertools.islice(itertools.cycle(scenario.accumulations), number)
    rest = (PLAIN,) * (number - scenario.num_steps)
    return replace(
        _with_few_parameters(scenario),
        accumulations=tuple(counts),
        events=(*scenario.events, *rest) if scenario.events else (),
    )


def _with_long_training(scenario: Scenario, number: int) -> Scenario:
    """Repeat the step of a scenario that has one, with one parameter, and without its event."""
    alone = replace(_chosen(scenario), use=PLAIN, also_in_next_group=False)
    small = replace(scenario, parameters=(alone,), events=())
    counts = itertools.islice(itertools.cycle(small.accumulations), number)
    return replace(small, accumulations=tuple(counts))


def _with_micro_batches(scenario: Scenario, number: int) -> Scenario:
    """Lengthen the steps, of which at most two stay; of unequal ones the second alone."""
    counts = (number,) * min(scenario.num_steps, 2)
    if len(set(scenario.accumulations)) > 1:
        counts = (scenario.accumulations[0], number)
    return replace(
        _with_few_parameters(scenario),
        accumulations=counts,
        events=_unless_plain(scenario.events[:2]),
    )


def _with_few_parameters(scenario: Scenario) -> Scenario:
    few = scenario.parameters[:_MAX_PARAMETERS_BESIDE]
    if not any(spec.requires_grad for spec in few):
        return scenario
    return replace(scenario, parameters=few)


_ENLARGE: dict[str, Callable[[Scenario, int], Scenario]] = {
    "many parameters": _with_parameters,
    "many elements": _with_elements,
    "many steps": _with_steps,
    "many micro-batches": _with_micro_batches,
    "huge parameter": _with_huge_parameter,
    "vast parameter": _with_huge_parameter,
    "many buckets": _with_buckets,
    "many ranks": _with_ranks,
    "unequal axes": _with_unequal_axes,
    "long training": _with_long_training,
}
