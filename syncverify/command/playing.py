"""The process of a command while it plays scenarios: its setup, its part under torchrun."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from syncverify.command.process_exit import (
    ending_when_interrupted,
    leave,
    leave_at_once,
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
    `kept` says at Ctrl-C, in a few words, which results are not lost.
    """
    show_warnings_once()
    torch.set_num_threads(1)  # ranks are threads or processes of this machine already
    with ending_when_interrupted(kept):
        require_known_torch()
        require_known_groups(backend)
        yield


def follow_leader(backend: AnyBackend, subject: Subject) -> None:
    """Play as a follower of a torchrun job, and leave as the leader; else do nothing."""
    if isinstance(backend, TorchrunBackend) and backend.rank > 0:
        leave(ended(backend.follow(subject), backend))


def ended(code: int, backend: AnyBackend) -> int:
    """Return the exit code after a verdict; leave at once if a rank of this process hangs."""
    if isinstance(backend, TorchrunBackend) and backend.is_lost:
        leave_at_once(code)  # a thread of this process hangs in a collective
    return code
