"""The state of the process that changes with the turn; see Note [State of the process].

The only module that touches `importlib._bootstrap`. It relies on Python to look
`_find_and_load` up there for each module that is not loaded, and on nothing else; a test says
so.

Each function that `unittest.mock` replaces is seen, in any module and class. Programs also
assign to names, as torch's own tests do: those of `ASSIGNED` are seen.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest import mock

import torch.distributed as dist

from syncverify.sim.per_rank.parts import (
    ProcessPart,
    own_value,
    process_parts,
    set_own_value,
)
from syncverify.sim.turns.scheduler import own_rank

_COLLECTIVES: Final = (
    "all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "irecv", "isend", "recv", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "send",
)  # fmt: skip
_GROUP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
# Modules and classes, and the names of their functions. Classes that a process may never import
# are looked up in each run.
ASSIGNED: Final[tuple[tuple[Any, tuple[str, ...]], ...]] = (
    (dist, _COLLECTIVES),
    # `catch_warnings` replaces these, to record.
    (warnings, ("showwarning", "_showwarnmsg_impl")),
    ((_GROUP, "FSDPParamGroup"), ("unshard", "reshard", "post_backward")),
    ((_GROUP, "RegisterPostBackwardFunction"), ("backward",)),
)


class Functions:
    """The functions that a program may replace."""

    is_imported = True

    def __init__(self) -> None:
        self._shared = {place: own_value(*place) for place in _assigned()}

    def share(self) -> None:
        """Let the present functions be those of all ranks."""
        self._shared = {place: own_value(*place) for place in self._shared}

    def take(self) -> Any:
        """Return the functions that differ, by place, and put back those of all ranks."""
        changed = {}
        for place, shared in self._shared.items():
            value = own_value(*place)
            if value is not shared:
                changed[place] = value
                set_own_value(*place, shared)
        return changed or None

    def put(self, change: Any) -> None:
        """Replace the functions again."""
        for (owner, name), function in change.items():
            set_own_value(owner, name, function)

    def watching_mocks(self) -> AbstractContextManager[Any]:
        """Watch what `unittest.mock` replaces, for a block."""
        kind: Any = mock._patch  # noqa: SLF001  # of all patches
        enter = kind.__enter__

        def enter_watched(patch: Any) -> Any:
            owner = None if own_rank() is None else patch.getter()
            if isinstance(owner, type(sys) | type):
                # It has the value of all ranks still.
                place = owner, patch.attribute
                self._shared.setdefault(place, own_value(*place))
            return enter(patch)

        return mock.patch.object(kind, "__enter__", enter_watched)


def _assigned() -> Iterator[tuple[Any, str]]:
    for owner, names in ASSIGNED:
        if isinstance(owner, tuple):
            module, of_module = owner
            owner = getattr(sys.modules.get(module), of_module, None)
        yield from ((owner, name) for name in names if hasattr(owner, name))


def _imports_apart(
    apart: Callable[[], AbstractContextManager[None]],
) -> AbstractContextManager[Any]:
    """Run each import of a rank within a context, for a block; an import within it runs plainly."""
    bootstrap: Any = importlib._bootstrap  # noqa: SLF001
    load = bootstrap._find_and_load  # noqa: SLF001
    is_importing = False

    def load_apart(*args: Any) -> Any:
        nonlocal is_importing
        if is_importing or own_rank() is None:
            return load(*args)
        is_importing = True
        try:
            with apart():
                return load(*args)
        finally:
            is_importing = False

    return mock.patch.object(bootstrap, "_find_and_load", load_apart)


class StateOfRanks:
    """The changes that the ranks of one run have made to the process."""

    def __init__(self) -> None:
        self._parts: tuple[ProcessPart, ...] = ()
        self._changes = dict[int, list[tuple[ProcessPart, Any]]]()
        self._rank: int | None = None

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Keep the changes of ranks apart for a block, and from the process after it."""
        functions = Functions()
        self._parts = (*process_parts(), functions)
        with functions.watching_mocks(), _imports_apart(self._sharing_changes):
            try:
                yield
            finally:
                self.turn_to(None)

    def turn_to(self, rank: int | None) -> None:
        """Put the changes of a rank in the place of those of the last; None has none."""
        if rank == self._rank:
            return
        if self._rank is not None:
            self._changes[self._rank] = _taken(self._parts)
        if rank is not None:
            for part, change in self._changes.pop(rank, ()):
                part.put(change)
        self._rank = rank

    @contextmanager
    def _sharing_changes(self) -> Iterator[None]:
        """Let all ranks have the changes of a block, which is an import."""
        imported = [part for part in self._parts if part.is_imported]
        own = _taken(imported) if self._rank is not None else []
        try:
            yield
        finally:
            if self._rank is not None:
                for part in imported:
                    part.share()
                for part, change in own:
                    part.put(change)


def _taken(parts: Iterable[ProcessPart]) -> list[tuple[ProcessPart, Any]]:
    changes = ((part, part.take()) for part in parts)
    return [(part, change) for part, change in changes if change is not None]
