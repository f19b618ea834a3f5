"""Threads of the subject's own, which are no ranks.

One thread at a time acts for a rank. What a thread of the subject would do meanwhile depends
on the operating system, so no run of the simulation would show it: such a run is refused, with
the line that issued the collective.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from syncverify.sim.device.torch_internals import RESOLVE_GROUP
from syncverify.sim.network.threaded_world import own_world, use_world
from syncverify.sim.turns.scheduler import Scheduler, own_rank


@contextmanager
def sharing_process_groups(scheduler: Scheduler) -> Iterator[None]:
    """Let threads that ranks start find the process groups of their rank, for a block.

    Otherwise torch says on them that there is no default process group, which is wrong. Groups
    of a mesh cannot be found there: a run that looks for one is refused at once.
    """
    original: Any = threading.Thread.start
    owner, name = RESOLVE_GROUP
    resolve = getattr(owner, name)

    def resolved(group_name: Any) -> Any:
        scheduler.refuse_foreign_thread()
        return resolve(group_name)

    def start(thread: Any) -> None:
        if own_rank() is not None:
            world, run = own_world(), thread.run

            def run_with_world() -> None:
                use_world(world)
                run()

            thread.run = run_with_world
        original(thread)

    with (
        patch.object(threading.Thread, "start", start),
        patch.object(owner, name, resolved),
    ):
        yield
