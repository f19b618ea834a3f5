"""The process groups of a rank that is a process: their transports, and their end.

The only module of the backends that touches the private functions by which torch makes and ends
groups; `tests/syncverify/playing/test_rank_groups.py` states the facts that it relies on.

Note [Kept transports]
    NCCL takes a second and more to connect ranks, and a scenario takes milliseconds. So the
    processes of a torchrun job keep the *transports* of one scenario for the next ones:
    torch's `ProcessGroupNCCL` or `ProcessGroupGloo`, the connections between some ranks.

    Not kept: the `ProcessGroup` around a transport, its name, its store, its place in
    torch's tables, and the meshes. Those are as new in each scenario as in a new process,
    and the state that a subject keeps by group is too. All that a transport itself
    remembers is its connections, and how many collectives it has carried.

    The n-th group of the same ranks in a scenario gets the n-th transport of those ranks.
    Members of a group make their groups of the same ranks in one order: torch pairs groups
    by that order as well. A group with options of its own gets a transport of its own.

    A transport that still holds a collective without a peer would give that one to the next
    scenario. So the leader announces a new epoch after each run with a fault or with
    collectives that do not match, and the first scenario of an epoch finds no transports.
"""

import gc
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from typing_extensions import override

_TRANSPORTS = (
    "ProcessGroupNCCL", "ProcessGroupNCCL2", "ProcessGroupNCCLLazy", "ProcessGroupGloo"
)  # fmt: skip


def end_groups(*, is_clean: bool) -> None:
    """End all process groups of this process, if the subject has left any.

    A clean end waits until all ranks have played all collectives. After a fault some
    collective may have no peer: NCCL's `shutdown` would wait for its kernel for ever, and
    `abort` ends the kernel.

    Source:
        `abort` and `shutdown` in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
    """
    if dist.is_initialized() and is_clean:
        dist.destroy_process_group()
    elif dist.is_initialized():
        c10d._abort_process_group()  # noqa: SLF001
    _forget_groups_of_meshes()


def has_all_ends() -> bool:
    """Tell whether transports have the methods that end them; to call NCCL's takes a GPU."""
    classes = [getattr(c10d, name) for name in _TRANSPORTS if hasattr(c10d, name)]
    legacy: Any = c10d.ProcessGroupNCCL
    groups = all(hasattr(legacy, name) for name in ("_group_start", "_group_end"))
    return groups and all(
        hasattr(each, name) for each in classes for name in ("abort", "shutdown")
    )


def _forget_groups_of_meshes() -> None:
    """Let meshes forget their process groups; those hold threads and sockets.

    torch's caches of DTensor operators and of redistributions keep meshes for ever: some by
    thread, some by process, some in closures of operators.
    """
    for each in gc.get_objects():
        if type(each) is DeviceMesh and hasattr(each, "_pg_registry"):
            each._pg_registry.clear()  # noqa: SLF001


class _Connection(NamedTuple):
    """The key of a transport: those with equal keys may take each other's place."""

    transport: str
    ranks: tuple[int, ...]
    # Timeout of its collectives; None for torch's own.
    timeout: timedelta | None


class KeptTransports:
    """The transports that one process keeps; see Note [Kept transports]."""

    def __init__(self) -> None:
        self._kept: dict[_Connection, list[Any]] = {}
        self._num_taken: Counter[_Connection] = Counter()
        # Ranks and timeout of the group that torch makes now; None for a transport of its own.
        self._asked: tuple[tuple[int, ...], timedelta | None] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let torch take kept transports, for the length of a scenario."""
        self._num_taken.clear()
        with ExitStack() as stack:
            make = c10d._new_process_group_helper  # noqa: SLF001
            shutdown = dist.ProcessGroup.shutdown
            changes: list[tuple[Any, str, Any]] = [
                (c10d, "_new_process_group_helper", self._noting(make)),
                (dist.ProcessGroup, "shutdown", self._sparing_kept(shutdown)),
            ]
            for name in _TRANSPORTS:
                # NCCL may be left out of torch.
                if original := getattr(c10d, name, None):
                    keeper = {"original": original, "take": self._take}
                    changes.append((c10d, name, _TransportKeeper(name, (), keeper)))
            for change in changes:
                stack.enter_context(patch.object(*change))
            yield

    def drop(self) -> None:
        """Abort and forget all transports: a collective may be left in one."""
        self.abort()
        self._kept.clear()

    def abort(self) -> None:
        """End all collectives on all transports, from any thread.

        A rank that waits for one goes on, with wrong values or with an error.
        """
        transports = self.transports()
        nccl = next((t for t in transports if hasattr(t, "_group_start")), None)
        # Communicators that NCCL does not abort together may wait for each other. `nccl2` has
        # no such block, and torch aborts its communicators one by one as well.
        if nccl is not None:
            nccl._group_start()  # noqa: SLF001
        for transport in transports:
            transport.abort()
        if nccl is not None:
            nccl._group_end()  # noqa: SLF001

    def transports(self) -> list[Any]:
        """Return all transports that are kept."""
        return [each for kept in self._kept.values() for each in kept]

    def _noting(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def noting(
            size: int, rank: int, ranks: list[int], *given: Any, **options: Any
        ) -> Any:
            has_own_options = options.get("backend_options") or len(given) > 3
            # torch then wraps transports, and its wrappers shut them down.
            is_wrapped = dist.get_debug_level() == dist.DebugLevel.DETAIL
            if not (has_own_options or is_wrapped):
                # The default group, which comes first, has no list of ranks.
                members = tuple(ranks) or tuple(range(size))
                self._asked = members, options.get("timeout")
            try:
                return make(size, rank, ranks, *given, **options)
            finally:
                self._asked = None

        return noting

    def _take(self, name: str, make: Callable[[], Any]) -> Any:
        if self._asked is None:
            return make()
        key = _Connection(name, *self._asked)
        kept = self._kept.setdefault(key, [])
        if self._num_taken[key] == len(kept):
            kept.append(make())
        self._num_taken[key] += 1
        return kept[self._num_taken[key] - 1]

    def _sparing_kept(self, shutdown: Callable[[Any], None]) -> Callable[[Any], None]:
        def shut_down(group: Any) -> None:
            devices = group._device_types  # noqa: SLF001
            own = [group._get_backend(device) for device in devices]  # noqa: SLF001
            if not any(each is kept for each in own for kept in self.transports()):
                shutdown(group)

        return shut_down


class _TransportKeeper(type):
    """The class of classes that give a kept transport in the place of a new one."""

    original: Any
    take: Callable[[str, Callable[[], Any]], Any]

    @override
    def __call__(cls, *args: Any, **options: Any) -> Any:
        return cls.take(cls.__name__, lambda: cls.original(*args, **options))

    def __getattr__(cls, name: str) -> Any:
        """Return an attribute of torch's class, such as `ProcessGroupNCCL.Options`."""
        return getattr(cls.original, name)

    @override
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.original)


def use_loopback() -> None:
    """Keep gloo on the loopback interface, unless the environment names another one."""
    for _, name in socket.if_nameindex():
        if name.startswith("lo"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
