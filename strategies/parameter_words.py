"""Strategies for what is said of a parameter beyond its shape, placements and dtypes."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from hypothesis import strategies as st

from syncverify.subject import Capabilities

Words = tuple[tuple[str, Any], ...]
_ONE_LISTED_TWICE_IN = 12
# Of parameters that can be; only few have four dims.
_ONE_TRANSPOSED_IN = 4
_ONE_CHANNELS_LAST_IN = 2


@functools.cache
def parameter_words(
    *, num_dims: int, capabilities: Capabilities
) -> st.SearchStrategy[Words] | None:
    """Generate fields of `ParameterSpec`; shrinks toward none.

    Args:
        num_dims: Number of dims of the parameter.
        capabilities: What the subject promises.

    Returns:
        A strategy for pairs of field and value, one choice each; None where there is
        nothing to choose.
    """
    kinds = [_listings(capabilities), _memory_formats(num_dims, capabilities)]
    choices = [tuple(itertools.chain(*chosen)) for chosen in itertools.product(*kinds)]
    if len(choices) == 1:
        return None
    return st.sampled_from(sorted(choices, key=len))


def _listings(capabilities: Capabilities) -> list[Words]:
    if not capabilities.covers("listed", "twice"):
        return [()]
    return [()] * (_ONE_LISTED_TWICE_IN - 1) + [(("num_listed", 2),)]


def _memory_formats(num_dims: int, capabilities: Capabilities) -> list[Words]:
    one_in = {}
    if num_dims >= 2:
        one_in["transposed"] = _ONE_TRANSPOSED_IN
    if num_dims == 4:
        one_in["channels_last"] = _ONE_CHANNELS_LAST_IN
    covered = {
        name: count
        for name, count in one_in.items()
        if capabilities.covers("memory_format", name)
    }
    rare: list[Words] = [(("memory_format", name),) for name in covered]
    return [()] * (min(covered.values(), default=2) - 1) + rare
