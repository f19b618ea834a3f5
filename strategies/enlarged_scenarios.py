"""Scenarios with one large number: of parameters, elements, buckets, ranks, steps, micro-batches.

Everything else becomes small, so that a large scenario costs a few usual ones.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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
from syncverify.scenario.words import allowed_words, unless_plain, with_parameter
from syncverify.strategies.bucket_caps import cap_within

# Not one choice among many: Hypothesis draws large indices unevenly.
_IS_LARGE = st.sampled_from([*[False] * (TABLE["size"].one_in - 1), True])
_MAX_PARAMETERS_BESIDE = 3
_MOST_RANKS = 8
_USUAL_WEIGHT = 5
_OF_MANY_RANKS = ("many ranks", "unequal axes")


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

    A few parameters more than usual come with several steps, and with all micro-batches. Shrinks
    toward the scenario itself. The arguments are those of `scenarios`.
    """
    sizes = _sizes(capabilities, has_many_ranks=max_ranks >= MANY["ranks"] - 1)
    if scenario.module != PLAIN:
        return scenario  # a module has its own parameters, and takes longer
    if size is None:
        if sizes is None or not draw(_IS_LARGE):
            return scenario
        size = draw(sizes)
    small, number = scenario, draw(_numbers(size))
    # Where ranks sum no gradient, a number shows little: one parameter is replicated.
    if small.mesh.num_ranks > 1 and not reduce_axes(small.mesh, _chosen(small)):
        replicated = (REPLICATE,) * len(small.mesh.shape)
        small = _with_chosen(small, placements=replicated)
    if size == "many parameters" and number < MANY["parameters"]:
        small = _repeated(small, max(small.num_steps, 2))
    elif size == "many parameters" or _SIZES[size].weight < _USUAL_WEIGHT:
        small = _in_fewest_steps(small, capabilities)
    large = _SIZES[size].enlarge(small, number)
    large = replace(
        large,
        bucket_cap_bytes=cap_within(
            large.bucket_cap_bytes, large.mesh, large.parameters, capabilities
        ),
    )
    return scenario if features_outside(large, capabilities) else large


def with_many_ranks(scenario: Scenario) -> Scenario:
    """Give a scenario of one step on four ranks five ranks, six or eight; or return it itself.

    It takes no draw. Only short scenarios change, for many ranks cost much, and only those that
    reduce a parameter. The mesh decides the number, so that shrinking keeps it.
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
    """Repeat a short step on two ranks a dozen times and more; or return the scenario itself.

    It takes no draw. Only cheap steps that reduce a parameter change. The parameters decide the
    number, so that shrinking keeps it.
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
    weighted = [[size] * _SIZES[size].weight for size in left]
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
        events=unless_plain(scenario.events[:fewest]),
    )
    return _without_late_events(short)


def _without_late_events(scenario: Scenario) -> Scenario:
    """Make the last step plain if its own gradients do not show its event."""
    *before, last = scenario.events or (PLAIN,)
    if EVENTS[last].shows_later or not EVENTS[last].has_backward or last == FAILING:
        last = PLAIN
    return replace(scenario, events=unless_plain((*before, last)))


def _with_elements(scenario: Scenario, number: int) -> Scenario:
    """Lengthen the first dim of one parameter."""
    shape = _long(scenario, number)
    # A Hessian of a thousand elements has a million.
    return _with_chosen(scenario, global_shape=shape, use=PLAIN)


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
    if not local_bytes(scenario.mesh, _chosen(scenario), 0):
        scenario = _with_chosen(scenario, global_shape=_long(scenario, 1))
    many = _with_parameters(scenario, number)
    cap = local_bytes(scenario.mesh, _chosen(scenario), 0)
    return replace(many, bucket_cap_bytes=max(1, cap))


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


def _with_chosen(scenario: Scenario, **changes: Any) -> Scenario:
    chosen = _chosen(scenario)
    return with_parameter(scenario, scenario.parameters.index(chosen), **changes)


def _chosen(scenario: Scenario) -> ParameterSpec:
    """Return a trainable parameter, which is reduced if any is, and used by each loss."""
    reduced = [s for s in scenario.trainable if reduce_axes(scenario.mesh, s)]
    used = [spec for spec in reduced if spec.used == TABLE["used"].plain_word]
    return (used or reduced or scenario.trainable)[0]


def _long(scenario: Scenario, numel: int) -> tuple[int, ...]:
    """Return a shape with as many dims as `_chosen` has, and at least `numel` elements."""
    spec = _chosen(scenario)
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


def _repeated(scenario: Scenario, number: int) -> Scenario:
    """Repeat the steps; their events come once."""
    counts = itertools.islice(itertools.cycle(scenario.accumulations), number)
    rest = (PLAIN,) * (number - scenario.num_steps)
    return replace(
        scenario,
        accumulations=tuple(counts),
        events=(*scenario.events, *rest) if scenario.events else (),
    )


def _with_long_training(scenario: Scenario, number: int) -> Scenario:
    """Repeat the step of a scenario that has one, with one parameter, and without its event."""
    alone = replace(_chosen(scenario), use=PLAIN, also_in_next_group=False)
    return _repeated(replace(scenario, parameters=(alone,), events=()), number)


def _with_micro_batches(scenario: Scenario, number: int) -> Scenario:
    """Lengthen the steps, of which at most two stay; of unequal ones the second alone."""
    counts = (number,) * min(scenario.num_steps, 2)
    if len(set(scenario.accumulations)) > 1:
        counts = (scenario.accumulations[0], number)
    return replace(
        _with_few_parameters(scenario),
        accumulations=counts,
        events=unless_plain(scenario.events[:2]),
    )


def _with_few_parameters(scenario: Scenario) -> Scenario:
    few = scenario.parameters[:_MAX_PARAMETERS_BESIDE]
    is_trained = any(spec.requires_grad for spec in few)
    return replace(scenario, parameters=few) if is_trained else scenario


class _Size(NamedTuple):
    """How a scenario gets a value of the topic `size`."""

    enlarge: Callable[[Scenario, int], Scenario]
    numbers: Sequence[int]  # one of which is drawn
    weight: int = _USUAL_WEIGHT  # among the sizes that are drawn


# Numbers lie at and beside widths of masks and of chunks. Powers of two leave no rest, others do.
# Below `MANY`, parameters are few enough for several steps of several micro-batches.
# Costly sizes weigh less: a scenario with a huge parameter or many buckets takes a second. A vast
# parameter comes as a huge one, unequal axes come with many ranks, and a long training comes as a
# last word.
# fmt: off
_SIZES = {
    "many parameters": _Size(
        _with_parameters, (9, 12, 17, MANY["parameters"], 33, 65, 64, 70)),
    "many elements": _Size(_with_elements, (MANY["elements"], 1025, 4099, 4096, 5000)),
    "many steps": _Size(
        lambda scenario, number: _repeated(_with_few_parameters(scenario), number),
        range(MANY["steps"], 11)),
    "many micro-batches": _Size(_with_micro_batches, (MANY["micro-batches"], 9, 17, 16)),
    # Three hundred buckets take seconds, and so do two million elements.
    "huge parameter": _Size(
        _with_huge_parameter,
        (HUGE + 1, HUGE, HUGE + 17, 2 * HUGE + 3) * 3 + (VAST + 5, 2**20, 2**21), weight=1),
    "vast parameter": _Size(
        _with_huge_parameter, (VAST + 5, VAST, 2**20, 2**20 + 3), weight=0),
    "many buckets": _Size(
        _with_buckets,
        (MANY["buckets"], 18, 33, 20, 24, 40, 65, 34) * 4 + (129, 129, 257, 300), weight=1),
    "many ranks": _Size(_with_ranks, (MANY["ranks"], 6, 7, _MOST_RANKS), weight=2),
    "unequal axes": _Size(_with_unequal_axes, (6, _MOST_RANKS), weight=0),
    # A step takes two hundredths of a second.
    "long training": _Size(
        _with_long_training, (MANY["long training"], 17, 13, 24, 12, 40, 12, 150), weight=0),
}
# fmt: on


@functools.cache
def _numbers(size: str) -> st.SearchStrategy[int]:
    listed = _SIZES[size].numbers
    if isinstance(listed, range):  # whole numbers shrink faster than an index
        return st.integers(listed[0], listed[-1])
    return st.sampled_from(listed)
