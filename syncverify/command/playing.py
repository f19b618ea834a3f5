"""The process of a command while it plays scenarios: its setup, its part under torchrun."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch

from syncverify.command.process_exit import (
    COMMAND_NAME,
    ending_when_interrupted,
    leave_at_once,
    tell_end,
)
from syncverify.playing.choice import AnyBackend
from syncverify.playing.known_groups import require_known_groups
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.playing.torchrun import TorchrunBackend
from syncverify.sim.known_torch import require_known_torch
from syncverify.subjects.subject import Subject


@contextmanager
def playing(kept: Callable[[], str] = str, *, backend: str = "sim") -> Iterator[None]:
    """Prepare this process for ranks, and end them all on Ctrl-C.

    torch is tried before the subject is imported, which may put functions in its place.

    Args:
        kept: Says at Ctrl-C, in a few words, which results are not lost.
        backend: Where the ranks run.
    """
    show_warnings_once()
    torch.set_num_threads(1)  # ranks are threads or processes of this machine already
    with ending_when_interrupted(COMMAND_NAME, kept):
        require_known_torch()
        require_known_groups(backend)
        yield


def follow_leader(backend: AnyBackend, subject: Subject) -> None:
    """Play as a follower of a torchrun job, and leave as the leader; else do nothing."""
    if isinstance(backend, TorchrunBackend) and backend.rank > 0:
        leave(backend.follow(subject), backend)


def leave(code: int, backend: AnyBackend) -> NoReturn:
    """Exit after a verdict; at once, if a rank of this process hangs.

    Raises:
        SystemExit: With the exit code.
    """
    if isinstance(backend, TorchrunBackend) and backend.is_lost:
        leave_at_once(code)  # a thread of this process hangs in a collective
    tell_end(code)
    raise SystemExit(code)
