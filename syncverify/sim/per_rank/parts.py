"""The parts of the process that ranks must not share, and the change that a rank has made to one.

Note [State of the process]
    Ranks are threads of one process; the ranks of a job are processes. So each rank has its
    own copy of the state that a process has once: as a turn ends, the rank's changes are taken
    out and kept, and they are put back as the rank's next turn starts. Each rank starts from the
    state that the process has at the start of the run. Between turns, and after the run, the
    process is as before. Parts that no rank has changed are compared, and not written; torch's
    generator is always written.

    An import runs once in a process, and each rank of a job makes it. So the changes that an
    import makes are those of all ranks.

    `docs/per-rank-state.md` lists the parts.

The only module that touches the private names of DTensor's tables, and
`torch.distributed.fsdp._debug_utils`. A test says that ranks do not see each other's.
"""

import ctypes
import functools
import operator
import random
import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch.distributed.tensor import DTensor, _random, _redistribute

from syncverify.sim.process_wide.settings import RANK_SETTINGS
from syncverify.sim.process_wide.surroundings import (
    FULL_BACKWARD_HOOKS,
    hook_registries,
)

_MISSING: Final = object()


def own_value(owner: Any, name: str) -> Any:
    """Return an attribute of a module or class, or a mark if the owner has none of its own."""
    return vars(owner).get(name, _MISSING)


def set_own_value(owner: Any, name: str, value: Any) -> None:
    """Set an attribute to a value of `own_value`."""
    if value is not _MISSING:
        setattr(owner, name, value)
    elif name in vars(owner):  # it was inherited
        delattr(owner, name)


class ProcessPart(Protocol):
    """One part of the process."""

    is_imported: bool  # an import may change the part for all ranks

    def take(self) -> Any:
        """Return the change since `share()` and undo it; None if there is none."""

    def put(self, change: Any) -> None:
        """Make a change that `take()` has returned."""

    def share(self) -> None:
        """Let the present state be that of all ranks."""


class Value:
    """A part that one value describes."""

    def __init__(
        self,
        read: Callable[[], Any],
        write: Callable[[Any], object],
        is_same: Callable[[Any, Any], bool],
        *,
        is_imported: bool = True,
    ) -> None:
        self._read, self._write, self._is_same = read, write, is_same
        self.is_imported = is_imported
        self.share()

    def share(self) -> None:
        """Let the present value be that of all ranks."""
        self._shared = self._read()

    def take(self) -> Any:
        """Return the rank's value in a tuple, or None if it is that of all ranks."""
        own = self._read()
        if self._is_same(own, self._shared):
            return None
        self._write(self._shared)
        return (own,)

    def put(self, change: Any) -> None:
        """Set the rank's value."""
        self._write(*change)


class Table:
    """A part that is a table, such as the hooks of all modules, and stays the same object."""

    is_imported = True

    def __init__(self, entries: MutableMapping[Any, Any]) -> None:
        self._entries = entries
        self.share()

    def share(self) -> None:
        """Let the present entries be those of all ranks."""
        self._shared = dict(self._entries)

    def take(self) -> Any:
        """Return the new entries and the names of lost ones, and put back those of all ranks."""
        entries, shared = self._entries, self._shared
        if entries == shared:
            return None
        new = {
            name: value
            for name, value in entries.items()
            if shared.get(name, _MISSING) is not value
        }
        lost = shared.keys() - entries.keys()
        entries.clear()
        entries.update(shared)
        return new, lost

    def put(self, change: Any) -> None:
        """Put the rank's entries into the table."""
        new, lost = change
        for name in lost:
            self._entries.pop(name, None)
        self._entries.update(new)


def attribute(owner: Any, name: str) -> Value:
    """Return an attribute as a part of the process."""
    read = functools.partial(getattr, owner, name)
    return Value(read, functools.partial(setattr, owner, name), operator.is_)


# Bytes of the state of NumPy's Mersenne Twister: 624 words, and a position among them.
_NUM_BYTES: Final = 4 * (624 + 1)


class _NumpyState(NamedTuple):
    """State of NumPy's generator."""

    words: bytes  # of its Mersenne Twister, and the position among them
    second: float | None  # the second number of a normal pair, whose first was drawn
    generator: Any = None  # that the program has put in the place of NumPy's


class _OfNumpy:
    """NumPy's generator, from the moment at which somebody imports it.

    `get_state` takes 30 us and more. The words can be copied at the address that NumPy gives.
    The second number of a normal pair lies elsewhere; a draw that leaves the words as they are
    shows it.
    """

    is_imported = False

    def __init__(self) -> None:
        self._numpy_random: Any = None
        self._generator: Any = None
        self.share()

    def share(self) -> None:
        """Let the present state be that of all ranks."""
        found: Any = sys.modules.get("numpy.random")
        # Absent during the import. A process that has another kind of generator keeps it.
        generator = getattr(found, "get_bit_generator", lambda: None)()
        if type(generator).__name__ == "MT19937":
            self._numpy_random, self._generator = found, generator
            self._shared = self._taken()
            self.put(self._shared)

    def take(self) -> _NumpyState | None:
        """Return the rank's state, or None if it is that of all ranks."""
        if self._numpy_random is None:
            self.share()
            return None
        other = self._numpy_random.get_bit_generator()
        if other is not self._generator:
            self._numpy_random.set_bit_generator(self._generator)
            self.put(self._shared)
            return self._shared._replace(generator=other)
        if self._shared.second is None and self._words() == self._shared.words:
            return None
        own = self._taken()
        self.put(self._shared)
        return own

    def put(self, change: _NumpyState) -> None:
        """Set the rank's state; no normal pair is half drawn at present."""
        ctypes.memmove(self._address(), change.words, _NUM_BYTES)
        if change.generator is not None:
            self._numpy_random.set_bit_generator(change.generator)
        elif change.second is not None:
            name, words, position, *_ = self._numpy_random.get_state()
            state = (name, words, position, 1, change.second)
            self._numpy_random.set_state(state)

    def _taken(self) -> _NumpyState:
        """Return the state, and leave no normal pair that is half drawn."""
        words = self._words()
        number = self._numpy_random.standard_normal()
        if self._words() == words:
            return _NumpyState(words, number)
        self._numpy_random.standard_normal()
        ctypes.memmove(self._address(), words, _NUM_BYTES)
        return _NumpyState(words, None)

    def _words(self) -> bytes:
        return ctypes.string_at(self._address(), _NUM_BYTES)

    def _address(self) -> int:
        return int(self._generator.ctypes.state_address)


_DISPATCHER: Any = DTensor._op_dispatcher  # noqa: SLF001
_HANDLERS: Final = "_custom_op_handlers"
# State of DTensor that a program changes for the length of a block; a torch may lack some.
_OF_DTENSOR: Final[tuple[tuple[Any, str], ...]] = (
    (_DISPATCHER, _HANDLERS),  # of operators: `loss_parallel`, `context_parallel`
    (_DISPATCHER, "_allow_implicit_replication"),  # `implicit_replication`
    (_random, "_rng_tracker"),  # the first random operator on a mesh
    # Ways to redistribute, of two context managers.
    (_redistribute, "_FORCE_MIN_COST_REDISTRIBUTION_PLAN"),
    (_redistribute, "_DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION"),
)


def _set_filters(filters: Any) -> None:
    warnings.filters = filters
    with warnings.catch_warnings():  # its end makes Python look at filters again
        pass


def process_parts() -> Iterator[ProcessPart]:
    """Yield the parts, as they are at the start of a run; functions are one more."""
    # Generators: what an import draws, the importing rank draws. To copy the state of torch's is
    # faster than to compare it.
    cpu = torch.default_generator
    yield Value(cpu.get_state, cpu.set_state, lambda *_: False, is_imported=False)
    yield Value(random.getstate, random.setstate, operator.eq, is_imported=False)
    yield _OfNumpy()
    # Hooks of all modules and of all optimizers. torch's `CommDebugMode` and `ModuleTracker`
    # register such hooks for the length of a block.
    yield from map(Table, hook_registries().values())
    yield attribute(*FULL_BACKWARD_HOOKS)
    for owner, name in _OF_DTENSOR:
        if hasattr(owner, name):
            yield attribute(owner, name)
    # The table itself is changed as well as replaced.
    yield Table(getattr(_DISPATCHER, _HANDLERS))
    # Phases that the profiler of FSDP1 names, if the process has imported FSDP1.
    module = sys.modules.get("torch.distributed.fsdp._debug_utils")
    profiler: Any = getattr(module, "SimpleProfiler", None)
    if profiler is not None:
        phases: set[str] = profiler.profiling

        def fill(named: frozenset[str]) -> None:
            phases.clear()
            phases.update(named)

        yield Value(lambda: frozenset(phases), fill, operator.eq)
    for setting in RANK_SETTINGS.values():
        yield Value(setting.read, setting.set, operator.eq)
    # Filters belong to a rank within `warnings.catch_warnings()`; outside of such a block, all
    # ranks change one list.
    yield Value(lambda: warnings.filters, _set_filters, operator.is_)
    for name in ("stdout", "stderr"):
        yield attribute(sys, name)
