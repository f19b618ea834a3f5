"""The backends that a subject sees as those that move its data.

The machine moves the data of all groups, under its own name. A program that reads the name of
the backend, to choose a way or to check its set-up, gets the same name as on real ranks: that
of the library with which it made the group, or that of the default group. Functions of torch
get the name of the machine.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


class SeenBackends:
    """The names of the backends of one rank.

    Attributes:
        default: Name of the backend of the default group.
    """

    def __init__(self) -> None:
        self.default = "gloo"
        self._asked: dict[str, str] = {}

    def begin_world(self, backend: Any) -> None:
        """Note the backend of a new default group, if it is named; no other group is left."""
        self._asked.clear()
        if backend is not None:
            self.default = str(backend).lower()

    def note(self, group: Any, backend: Any) -> None:
        """Note the backend that a caller named; None is that of the default group."""
        if backend is not None and isinstance(group, dist.ProcessGroup):
            self._asked[group.group_name] = str(backend).lower()

    def of(self, group_name: str) -> str:
        """Return the backend of a group, by its name."""
        return self._asked.get(group_name, self.default)
