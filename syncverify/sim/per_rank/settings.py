"""Settings of torch and Python that a process has once, such as the default dtype.

Filters of warnings belong to a rank within `warnings.catch_warnings()`; outside of such a
block, all ranks change one list.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from syncverify.sim.per_rank.change import ProcessPart, Value, attribute
from syncverify.sim.process_wide.settings import settings_of_ranks


def settings() -> Iterator[ProcessPart]:
    """Yield the settings."""
    for setting in settings_of_ranks():
        yield Value(setting.read, setting.set, operator.eq)
    yield Value(lambda: warnings.filters, _set_filters, operator.is_)
    for name in ("stdout", "stderr"):
        yield attribute(sys, name)


def _set_filters(filters: Any) -> None:
    warnings.filters = filters
    with warnings.catch_warnings():  # its end makes Python look at filters again
        pass
