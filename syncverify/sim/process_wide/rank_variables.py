"""Variables of the environment that a launcher such as torchrun sets for each rank.

A subject may read its rank there, or `LOCAL_RANK` for its device.
"""

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any, Final

import torch.distributed as dist

from syncverify.holding import holding

# Of the machines on which ranks run; asked for every tensor.
_MACHINES: Final[Any] = SimpleNamespace(
    is_one=False, have_one_device=False, num_devices=None
)


def ranks_per_machine(world_size: int) -> int:
    """Return how many ranks share a machine; an even world of four or more has two machines.

    So a subject that takes a local number for a global one is seen. A launcher may say
    something else.
    """
    if _MACHINES.is_one or world_size < 4 or world_size % 2:
        return world_size
    return world_size // 2


@contextmanager
def one_machine(num_devices: int | None = None) -> Iterator[None]:
    """Let all ranks share a machine within a block, as the tests of a project assume.

    Its devices are `num_devices`; None for those of an outer block, or one a rank.
    """
    number = num_devices or _MACHINES.num_devices
    with holding(_MACHINES, "is_one", True), holding(_MACHINES, "num_devices", number):
        yield


def one_device() -> AbstractContextManager[Any]:
    """Let all ranks share device 0 within a block, as the threads of one process do."""
    return holding(_MACHINES, "have_one_device", True)


def device_index(rank: int, world_size: int) -> int:
    """Return the number of the device of a rank on its machine."""
    if _MACHINES.have_one_device:
        return 0
    return rank % int(_MACHINES.num_devices or ranks_per_machine(world_size))


def num_devices(world_size: int) -> int:
    """Return how many devices a program may number, whichever ranks share a machine."""
    return max(world_size, _MACHINES.num_devices or 0)


def devices_per_machine() -> int:
    """Return the number of devices on the machine of this rank."""
    return int(_MACHINES.num_devices or local_world_size())


def local_world_size() -> int:
    """Return the number of ranks on the machine of this rank."""
    return ranks_per_machine(dist.get_world_size())


RANK_VARIABLES: Final[Mapping[str, Callable[[], int]]] = {
    "RANK": dist.get_rank,
    "LOCAL_RANK": lambda: dist.get_rank() % local_world_size(),
    "GROUP_RANK": lambda: dist.get_rank() // local_world_size(),
    "WORLD_SIZE": dist.get_world_size,
    "LOCAL_WORLD_SIZE": local_world_size,
}


@contextmanager
def missing_rank_variables() -> Iterator[None]:
    """Set the variables of this process that no launcher has set, for the length of a block.

    The default process group is there.
    """
    missing = [name for name in RANK_VARIABLES if name not in os.environ]
    os.environ.update({name: str(RANK_VARIABLES[name]()) for name in missing})
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


# For each block that is open: tells whether the calling thread is a rank with groups.
_OPEN: Final[list[Callable[[], bool]]] = []


@contextmanager
def rank_environment(has_groups: Callable[[], bool]) -> Iterator[None]:
    """Let each rank read variables of its own, as a launcher sets them, within a block.

    For ranks that are threads of one process, which has one environment. `os.environ` itself
    stays, since a subject may have imported it by name. Blocks of several threads may end in any
    order.
    """
    _change_reading()
    _OPEN.append(has_groups)
    try:
        yield
    finally:
        _OPEN.remove(has_groups)


@functools.cache
def _change_reading() -> None:
    """Change how variables are read, once in a process.

    Python 3.13 goes on to call the method that it has cached, once a class has been changed
    1,000 times.
    """
    kind: Any = type(os.environ)
    read = kind.__getitem__

    def read_for_rank(environ: os._Environ[str], name: str) -> str:
        variable = RANK_VARIABLES.get(name) if _OPEN else None
        if variable and any(has_groups() for has_groups in _OPEN):
            return str(variable())
        return str(read(environ, name))

    kind.__getitem__ = read_for_rank
