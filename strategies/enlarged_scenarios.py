"""Scenarios with one large number: many parameters, elements, steps or micro-batches.

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
from syncverify.scenario.feature_table import MANY, PLAIN, TABLE
from syncverify.scenario.features import features_outside
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec, num_pieces
from syncverify.strategies.bucket_caps import cap_within
from syncverify.strategies.word_choices import allowed_words

# Not one choice among many: Hypothesis draws large indices unevenly.
_IS_LARGE = st.sampled_from([*[False] * (TABLE["size"].one_in - 1), True])
_MAX_PARAMETERS_BESIDE = 3
# At and beside widths of masks and of chunks. Powers of two leave no rest, others do. Below
# `MANY`, parameters are few enough for several steps of several micro-batches.
_NUMBERS = {
    "many parameters": st.sampled_from((9, 12, 17, MANY["parameters"], 33, 65, 64, 70)),
    "many elements": st.sampled_from((MANY["elements"], 1025, 4099, 4096, 5000)),
    "many steps": st.integers(MANY["steps"], 10),
    "many micro-batches": st.sampled_from((MANY["micro-batches"], 9, 17, 16)),
}


@st.composite
def enlarged_scenarios(
    draw: st.DrawFn, scenario: Scenario, *, capabilities: Capabilities
) -> Scenario:
    """Return a scenario itself, or one time out of twelve one with a large number.

    A few parameters more than usual come with several steps, and with all micro-batches.

    Shrinks toward the scenario itself.
    """
    sizes = _sizes(capabilities)
    if scenario.module != PLAIN or sizes is None or not draw(_IS_LARGE):
        return scenario  # a module has its own parameters, and takes longer
    size = draw(sizes)
    small, number = scenario, draw(_NUMBERS[size])
    if size == "many parameters":
        is_many = number >= MANY["parameters"]
        small = (
            _in_fewest_steps(scenario, capabilities) if is_many else _twice(scenario)
        )
    large = _ENLARGE[size](small, number)
    large = replace(
        large,
        bucket_cap_bytes=cap_within(
            large.bucket_cap_bytes, large.mesh, large.parameters, capabilities
        ),
    )
    return scenario if features_outside(large, capabilities) else large


@functools.cache
def _sizes(capabilities: Capabilities) -> st.SearchStrategy[str] | None:
    """Generate values of the topic `size`; None if the contract leaves none."""
    left = allowed_words("size", capabilities=capabilities)
    return st.sampled_from(left) if left else None


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
    events = scenario.events[:fewest]
    return replace(
        scenario,
        accumulations=(min(scenario.accumulations),) * fewest,
        events=events if {*events} - {PLAIN} else (),
    )


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


def _chosen(scenario: Scenario) -> ParameterSpec:
    """Return a trainable parameter, which is reduced if any is."""
    trainable = [spec for spec in scenario.parameters if spec.requires_grad]
    reduced = [spec for spec in trainable if reduce_axes(scenario.mesh, spec)]
    return (reduced or trainable)[0]


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
    """Repeat the steps, the events of them once, with few parameters."""
    counts = itertools.islice(itertools.cycle(scenario.accumulations), number)
    rest = (PLAIN,) * (number - scenario.num_steps)
    return replace(
        _with_few_parameters(scenario),
        accumulations=tuple(counts),
        events=(*scenario.events, *rest) if scenario.events else (),
    )


def _with_micro_batches(scenario: Scenario, number: int) -> Scenario:
    """Lengthen all steps, of which at most two stay, with few parameters."""
    events = scenario.events[:2]
    counts = (number,) * min(scenario.num_steps, 2)
    if len(set(scenario.accumulations)) > 1:
        counts = (scenario.accumulations[0], number)
    return replace(
        _with_few_parameters(scenario),
        accumulations=counts,
        events=events if {*events} - {PLAIN} else (),
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
}
