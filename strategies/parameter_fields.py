"""Strategies for fields of a parameter beyond its shape, placements and dtypes."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities

Fields = tuple[tuple[str, Any], ...]
_ONE_LISTED_TWICE_IN = 12
# Among parameters with enough dims for the format. Few have four dims, so the share of
# `channels_last` among them is larger.
_ONE_TRANSPOSED_IN = 4
_ONE_CHANNELS_LAST_IN = 2


@functools.cache
def parameter_fields(
    *, num_dims: int, capabilities: Capabilities
) -> st.SearchStrategy[Fields] | None:
    """Return a strategy for the fields about lists, and for `memory_format`.

    It draws (field, value) pairs by one choice and shrinks toward none of them. None if the
    contract leaves no choice.
    """
    kinds = [_listings(capabilities), _memory_formats(num_dims, capabilities)]
    choices = [tuple(itertools.chain(*chosen)) for chosen in itertools.product(*kinds)]
    if len(choices) == 1:
        return None
    return st.sampled_from(sorted(choices, key=len))


def _listings(capabilities: Capabilities) -> list[Fields]:
    fields: dict[str, Fields] = {
        "twice": (("num_listed", 2),),
        "in two groups": (("also_in_next_group", True),),
    }
    rare = [own for word, own in fields.items() if capabilities.covers("listed", word)]
    return [()] * (_ONE_LISTED_TWICE_IN - 1) * len(rare) + (rare or [()])


def _memory_formats(num_dims: int, capabilities: Capabilities) -> list[Fields]:
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
    rare: list[Fields] = [(("memory_format", name),) for name in covered]
    return [()] * (min(covered.values(), default=2) - 1) + rare
