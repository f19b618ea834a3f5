"""Calls by which a program acts on its process, which several ranks may share here.

`sys.exit` and `os._exit` end the rank, as they end the process of a rank under torchrun. A
sleep gives the turn away, so that other ranks move meanwhile, and is short: no time passes on
the simulated machine. A name that a program imported before, as in `from time import sleep`,
keeps its meaning.

The clocks note where a program decides by them.

`torch.distributed.checkpoint.async_save` may start a process for each rank, and these processes
would be ranks of another group. Such a call is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn
from unittest.mock import patch

from syncverify.faces.simulation.read_clocks import clocks_noted
from syncverify.sim.device.torch_internals import saver_in_a_process
from syncverify.sim.turns.refusals import refusal
from syncverify.sim.turns.scheduler import own_rank
from syncverify.sim.turns.stalls import TurnTaking
from syncverify.trace.stacks import is_subject_above

# A program may wait for another process, and look for it after each sleep.
_MAX_SLEEP_SECONDS = 0.05
_REFUSE_SAVER = refusal("checkpoints that another process saves")


@contextmanager
def calls_on_ranks(scheduler: TurnTaking) -> Iterator[None]:
    """Let calls of a rank's thread act on the rank, for the length of a block.

    Args:
        scheduler: Hands out turns.

    Raises:
        SystemExit: In the thread of a rank that calls `os._exit`.
    """
    process, leave, sleep = os.getpid(), os._exit, time.sleep

    def leave_rank(status: int) -> NoReturn:
        if own_rank() is None or os.getpid() != process:  # such as a forked child
            leave(status)
        raise SystemExit(status)

    def sleep_shortly(seconds: float) -> None:
        if own_rank() is None or not is_subject_above(2):
            sleep(seconds)
            return
        scheduler.yield_turn()
        pause = min(seconds, _MAX_SLEEP_SECONDS)
        sleep(pause)
        scheduler.note_pause(pause)

    with (
        patch.object(os, "_exit", leave_rank),
        patch.object(time, "sleep", sleep_shortly),
        patch.object(*saver_in_a_process(), _REFUSE_SAVER),
        clocks_noted(),
    ):
        yield
