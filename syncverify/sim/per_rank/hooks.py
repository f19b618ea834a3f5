"""Hooks of all modules and of all optimizers: `register_module_forward_hook` and others.

torch's `CommDebugMode` and `ModuleTracker` register such hooks for the length of a block.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.sim.per_rank.change import ProcessPart, Table, Value
from syncverify.sim.process_wide.global_hooks import (
    full_backward_hooks,
    hook_registries,
)


def hooks() -> Iterator[ProcessPart]:
    """Yield the registries of hooks."""
    for registry in hook_registries().values():
        yield Table(registry)
    yield Value(*full_backward_hooks(), is_same=lambda one, other: one is other)
