"""The names by which torch knows NCCL, and the promises that a program may rely on.

Note [Names of NCCL]
    torch 2.14 has two implementations. `ProcessGroupNCCL` is the one of all earlier
    releases; its name is `nccl-legacy` now. `ProcessGroupNCCL2` is `nccl2`, and `nccl-lazy` is
    the same with a communicator for each pair of ranks that exchange messages. The name `nccl`
    stands for the first in 2.14 and for the second in 2.15, unless `TORCH_DIST_USE_NCCL2` in
    the environment says 1 or 0.

    Both run a collective with a handle on a stream of the communicator, which first waits for
    the current stream, and one without a handle on the current stream. `wait()` orders the
    current stream, and lets go of the inputs. They differ in what `Promises` lists.

    A program that asks for `nccl` may get either, so nothing counts that only one of them
    promises. Without the second one in torch, the first one's promises count.

Source:
    torch/distributed/distributed_c10d.py, `_register_builtin_nccl_backend`;
    torch/csrc/distributed/c10d/nccl2/WorkNCCL.cpp, `WorkNCCL::getFuture`.
"""

from __future__ import annotations

import functools
import os
from importlib.metadata import entry_points
from typing import Final, NamedTuple

import torch
import torch.distributed as dist

from syncverify.scenario.settings import NCCL_NAMES

_CHOICE: Final = "TORCH_DIST_USE_NCCL2"


class Promises(NamedTuple):
    """The promises of one implementation beyond those that all of them make.

    Attributes:
        orders_by_future: `Work.get_future()` lets the current stream wait for the
            collective, as `wait()` does.
        keeps_results: The results of a collective stay alive until a wait, though the
            handle is dropped. The inputs do in any case.
        orders_messages: A message that is in no batch runs on the stream of its group, in
            order with the group's collectives. Otherwise it may run on a stream of its pair
            of ranks.
    """

    orders_by_future: bool
    keeps_results: bool
    orders_messages: bool


_LEGACY: Final = Promises(
    orders_by_future=False, keeps_results=True, orders_messages=False
)
_NEWER_SINCE: Final = "2.15"  # the name `nccl` stands for `nccl2`
_FORGETS_SINCE: Final = "2.15"  # its queue of works holds their inputs alone


@functools.cache
def _named_in_torch() -> frozenset[str]:
    """Return the names that torch, or a package beside it, registers at their first use."""
    found = entry_points(group="torch.distributed.backends")
    return frozenset(each.name.lower() for each in found)


def known_libraries() -> frozenset[str]:
    """Return the names of the libraries that a program may ask torch for."""
    return _named_in_torch() | {*dist.Backend.backend_list}


def is_of_nccl(backend: str) -> bool:
    """Tell whether a name, or one for each device, stands for NCCL."""
    return _name_of_nccl(backend) is not None


def _name_of_nccl(backend: str) -> str | None:
    libraries = (part.rpartition(":")[2] for part in backend.split(","))
    return next((each for each in libraries if each in NCCL_NAMES), None)


def uses_nccl2(backend: str) -> bool:
    """Tell whether this torch gives a group the newer implementation, by the group's name."""
    name = _name_of_nccl(backend)
    if name != "nccl":
        return name in {"nccl2", "nccl-lazy"}
    by_default = "1" if torch.__version__ >= _NEWER_SINCE else "0"
    return "nccl2" in _named_in_torch() and os.environ.get(_CHOICE, by_default) != "0"


def promises_of(backend: str) -> Promises:
    """Return the promises that count, by the name that a program used.

    Args:
        backend: A name, or one for each device, such as `cpu:gloo,cuda:nccl2`. Other
            libraries are simulated as NCCL.
    """
    name = _name_of_nccl(backend)
    newer = Promises(
        orders_by_future=True,
        keeps_results=torch.__version__ < _FORGETS_SINCE,
        orders_messages=name != "nccl-lazy",
    )
    if name in {"nccl2", "nccl-lazy"}:
        return newer
    choice = os.environ.get(_CHOICE) if "nccl2" in _named_in_torch() else "0"
    if name != "nccl" or choice == "0":
        return _LEGACY
    # Unset, the name stands for `nccl2` in the releases that forget.
    return (
        newer if choice == "1" else _LEGACY._replace(keeps_results=newer.keeps_results)
    )
