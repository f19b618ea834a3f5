"""The backends that a subject sees as those that move its data.

The machine moves the data of all groups, under its own name. A program that reads the name of
the backend, to choose a way or to check its set-up, gets the same name as on real ranks: that
of the library with which it made the group, or that of the default group. Functions of torch
get the name of the machine.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from syncverify.scenario.settings import NCCL_NAMES

# Each library moves memory of these devices, unless a program names one for each device.
_CPU, _CUDA = torch.device("cpu"), torch.device("cuda")


class SeenBackends:
    """The names of the backends of one rank.

    Attributes:
        default: Name of the backend of the default group.
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
        libraries = {part.rpartition(":")[2] for part in name.split(",")}
        return "nccl" if libraries & {*NCCL_NAMES} else min(libraries)

    def devices_of(self, group_name: str) -> list[torch.device]:
        """Return the devices whose memory a group moves, by its name."""
        if not self._is_named and group_name not in self._asked:
            return [_CPU, _CUDA]  # torch chooses a library for each device
        name = self.of(group_name)
        named = [part.partition(":")[0] for part in name.split(",") if ":" in part]
        if named:
            return [torch.device(each) for each in named]
        return [_CUDA] if name in NCCL_NAMES else [_CPU, _CUDA]
