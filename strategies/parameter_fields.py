"""Strategies for fields of a parameter beyond its shape, placements and dtypes."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import TABLE, WORDS
from syncverify.scenario.words import allowed_words

Fields = tuple[tuple[str, Any], ...]


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
    rare = [fields[word] for word in allowed_words("listed", capabilities=capabilities)]
    return [()] * (TABLE["listed"].one_in - 1) * len(rare) + (rare or [()])


def _memory_formats(num_dims: int, capabilities: Capabilities) -> list[Fields]:
    """List choices, of which the most frequent format decides how many have no format."""
    rows = [
        row
        for word in allowed_words("memory_format", capabilities=capabilities)
        if (row := WORDS["memory_format"][word]).fewest_dims <= num_dims
    ]
    one_in = [row.one_in or TABLE["memory_format"].one_in for row in rows]
    rare: list[Fields] = [(("memory_format", row.value),) for row in rows]
    return [()] * (min(one_in, default=2) - 1) + rare
