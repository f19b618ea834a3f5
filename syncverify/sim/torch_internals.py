"""The names of `torch._C` that the harness needs, behind names of our own.

The only module of the harness that touches `torch._C`. What we rely on is tested where
it is used: thread isolation in `threaded_world.py`, the running node in
`engine_streams.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._autograd import _get_sequence_nr

# torch's stub leaves this one out.
from torch._C._distributed_c10d import (  # type: ignore[attr-defined]
    _set_thread_isolation_mode,
)


def isolate_threads(enabled: bool) -> None:  # noqa: FBT001  # as torch has it
    """Keep functional collectives of one thread from finding another's groups."""
    _set_thread_isolation_mode(enabled)


def running_node() -> Any:
    """Return the autograd node that this thread evaluates, or None."""
    return torch._C._current_autograd_node()  # noqa: SLF001


def next_sequence_number() -> int:
    """Return the number of the next autograd node that this thread makes."""
    return _get_sequence_nr()
