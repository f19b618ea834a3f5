"""The work of the processes that a process has started, as Linux shows it.

Note [A rank may wait for a process]
    A rank that builds an extension waits for a compiler. It uses no processor time then, and
    is as slow as the compiler, and no hang. So work of its descendants counts as work, up to
    the bound for a rank that sleeps and wakes. It never counts as time that the rank has
    spent itself: a build takes longer than a loop that has an end.

    A look reads files of each thread and of each descendant, so it is made only where a rank
    is otherwise idle for a window. The first look of a run has none before it, and takes all
    the time that descendants ever used for work of this window. So a hang is told one window
    later where a process of an earlier scenario has worked, and at the bound beside one that
    still spins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from syncverify.processes.process_state import (
    children,
    is_ready,
    processor_seconds_of_ended,
    processor_seconds_with_ended,
)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of all descendants of a process.

    Attributes:
        seconds: Processor time that they have used so far. It shrinks when one ends that
            nobody waits for.
        is_ready: Whether one runs, queues for a processor, or waits for a disk.
    """

    seconds: float = 0.0
    is_ready: bool = False


def work_of_descendants(pid: int) -> Work:
    """Return the work of the descendants of a process; none where there is no `/proc`."""
    found = [*_descendants(pid)]
    living = sum(processor_seconds_with_ended(each) for each in found)
    return Work(
        processor_seconds_of_ended(pid) + living, any(is_ready(each) for each in found)
    )


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)
