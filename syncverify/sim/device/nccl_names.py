"""The names by which torch knows NCCL, its promises, and the backends that a subject sees.

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

import functools
import os
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist

from syncverify.scenario.settings import NCCL_NAMES

_CHOICE: Final = "TORCH_DIST_USE_NCCL2"


class Promises(NamedTuple):
    """The promises of one implementation beyond those that all of them make."""

    # `Work.get_future()` lets the current stream wait for the collective, as `wait()` does.
    orders_by_future: bool
    # The results of a collective stay alive until a wait, though the handle is dropped. The
    # inputs do in any case.
    keeps_results: bool
    # A message that is in no batch runs on the stream of its group, in order with the group's
    # collectives. Otherwise it may run on a stream of its pair of ranks.
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


def libraries_in(backend: str) -> list[str]:
    """Return the libraries in a name, which may have one for each device."""
    return [part.rpartition(":")[2] for part in backend.split(",")]


def _name_of_nccl(backend: str) -> str | None:
    return next((each for each in libraries_in(backend) if each in NCCL_NAMES), None)


def uses_nccl2(backend: str) -> bool:
    """Tell whether this torch gives a group the newer implementation, by the group's name."""
    name = _name_of_nccl(backend)
    if name != "nccl":
        return name in {"nccl2", "nccl-lazy"}
    by_default = "1" if torch.__version__ >= _NEWER_SINCE else "0"
    return "nccl2" in _named_in_torch() and os.environ.get(_CHOICE, by_default) != "0"


def promises_of(backend: str) -> Promises:
    """Return the promises that count, by the name that a program used, or one for each device.

    Other libraries than NCCL are simulated as NCCL.
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
    if choice == "1":
        return newer
    return _LEGACY._replace(keeps_results=newer.keeps_results)


# Each library moves memory of these devices, unless a program names one for each device.
_CPU, _CUDA = torch.device("cpu"), torch.device("cuda")


class SeenBackends:
    """The names of the backends that the subject of one rank sees as those that move its data.

    The machine moves the data of all groups, under its own name. A program that reads the name
    of the backend, to choose a way or to check its set-up, gets the same name as on real ranks:
    that of the library with which it made the group, or that of the default group. Functions of
    torch get the name of the machine.
    """

    def __init__(self) -> None:
        self.default = "gloo"
        self._is_named = True
        self._is_told = False
        self._asked: dict[str, str] = {}

    def tell(self, backend: str) -> None:
        """Name the library of the default group to the program."""
        self.default, self._is_told = backend, True

    def begin_world(self, backend: Any) -> None:
        """Note the backend of a new default group, if it is named; no other group is left."""
        self._asked.clear()
        self._is_named = backend is not None
        if backend is not None:
            self.tell(str(backend).lower())

    def note(self, group: Any, backend: Any) -> None:
        """Note the backend that a caller named; None is that of the default group."""
        if backend is not None and isinstance(group, dist.ProcessGroup):
            self._asked[group.group_name] = str(backend).lower()

    def of(self, group_name: str) -> str:
        """Return the backend of a group, by its name."""
        return self._asked.get(group_name, self.default)

    def library_of(self, group_name: str) -> str:
        """Return the name of a group's library for reports: NCCL's, unless another one is told."""
        name = self._asked.get(group_name, self.default if self._is_told else "nccl")
        return "nccl" if is_of_nccl(name) else min(libraries_in(name))

    def devices_of(self, group_name: str) -> list[torch.device]:
        """Return the devices whose memory a group moves, by its name."""
        if not self._is_named and group_name not in self._asked:
            return [_CPU, _CUDA]  # torch chooses a library for each device
        name = self.of(group_name)
        named = [part.partition(":")[0] for part in name.split(",") if ":" in part]
        if named:
            return [torch.device(each) for each in named]
        return [_CUDA] if name in NCCL_NAMES else [_CPU, _CUDA]
