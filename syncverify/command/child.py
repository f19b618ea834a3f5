"""A child process that plays for its owner, as the owner hears and sees it."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from syncverify.command.process_exit import leave
from syncverify.processes import supervised
from syncverify.processes.owner_link import Ends, Found, Lost
from syncverify.processes.silence import SILENCE_SECONDS, Silence
from syncverify.processes.stack_dump import CrashDump
from syncverify.processes.wire import Wire
from syncverify.trace.source_lines import CodeLine
from syncverify.trace.stacks import frames_in_dump


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an owner waits for its children, in seconds."""

    tick: float = 0.5  # between two looks at children that are silent
    silence: float = SILENCE_SECONDS  # after which a child in a scenario may be lost
    suspicion: float = 2.0  # after which a second child plays the scenario as well
    confirmation: float = 3.0  # silence of the second child that confirms a loss
    # Part of that silence in which the first child has ended: the second one may have waited for
    # a lock of the first.
    release: float = 1.5
    # Sleep of the child and all that it started, after which it is lost. Under torchrun a rank may
    # wait for other machines, which have bounds of their own.
    stillness: float = 60.0 if "TORCHELASTIC_RUN_ID" not in os.environ else math.inf
    # From Ctrl-C, or the end of a command, to the end of the child: more than its own grace.
    grace: float = 8.0


DEFAULT_PATIENCE = Patience()

# The owner passes these on, and cannot before it knows its child, which may play already.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
# Share of a processor: far more than the threads use that tell the owner that a process lives.
_IDLE_SHARE = 0.01
_STILL_LOOK_SECONDS = 5.0
_COMMAND = f'File "{Path(__file__).parent}'


class Child(supervised.Supervised):
    """A child of the owner, while it plays and after its end."""

    def __init__(
        self,
        process: supervised.StartedProcess,
        wire: Wire,
        lifeline: int,
        patience: Patience,
        crash: CrashDump,
    ) -> None:
        super().__init__(process, wire, lifeline, tick=patience.tick)
        self._patience = patience
        self._crash = crash
        self._deadline = float("inf")
        # Python may run while the main thread sleeps, as in an import or in a `__del__` between
        # two scenarios. That is no rank, and no other bound ends it.
        tick = min(_STILL_LOOK_SECONDS, patience.stillness / 10)
        self._stillness = Silence(self, tick=tick, idle_share=_IDLE_SHARE)
        self.code: int | None = None  # as the child told it
        self.lost: Lost | None = None  # after `finish`, also how it ended otherwise
        # The subject's lines in a process that kept Python from running, or that a signal such as
        # SIGSEGV ended.
        self.lines = list[CodeLine]()
        self.was_interrupted = False  # by the user
        self.has_found = False  # a search had ended, and had told violations
        self.is_finished = False  # all of this is known, and the process is gone

    @property
    def loss(self) -> Lost:
        """How the child was lost, or ended otherwise, once it is finished."""
        assert self.lost is not None
        return self.lost

    def is_over(self, bound: float) -> bool:
        """Tell whether the child has ended, or has to, after a silence as long as the bound."""
        if self.has_ended() or time.monotonic() > self._deadline:
            return True
        if self.is_stuck(bound):
            self._note_loss(self.hung())
            return True
        stillness = self._patience.stillness
        if self._stillness.finding(stillness, idle_bound=stillness) == "idle":
            self._note_loss(Lost("never_returns", f"has slept for {stillness:.0f} s"))
            del self.lines[:-1]  # above the innermost line is the command itself
            return True
        return False

    def _note_loss(self, lost: Lost) -> None:
        """Note where a lost child is, which ends it unless a signal has stopped it."""
        self.lost = lost
        self.lines = frames_in_dump(self.stacks())

    @override
    def note_time(self, seconds: float, *, is_silent: bool) -> None:
        super().note_time(seconds, is_silent=is_silent)
        self._stillness.go_on(seconds, is_silent=False)

    @override
    def hear(self) -> list[Any]:
        words = super().hear()
        if words:
            self._stillness.end()
        for word in words:
            match word:
                case Found():
                    self.has_found = True
                case Lost():
                    self.lost = word
                case Ends():
                    self.code = word.code
                    self._deadline = time.monotonic() + self._patience.grace
        return words

    def finish(self) -> None:
        """End the child and its process group, once."""
        if self.is_finished:
            return
        while (
            supervised.heard_from([self], 0) and supervised.HungUp() not in self.hear()
        ):
            pass
        self.signal(signal.SIGKILL)
        self.lost = self.lost or self.ended()
        # The innermost call is first, and the command itself is above the subject.
        dump = self._crash.take().partition(_COMMAND)[0]
        self.lines = frames_in_dump(dump) or self.lines
        self.drop()
        self.is_finished = True

    def interrupt(self) -> None:
        """Pass Ctrl-C on; the second one, or the end of the grace, ends the child."""
        grace = 0.0 if self.was_interrupted else self._patience.grace
        self.was_interrupted = True
        self._deadline = time.monotonic() + grace
        self.signal(signal.SIGINT)


def start(
    play: Callable[[], int],
    patience: Patience,
    *,
    prepare: Callable[[], None] = lambda: None,
    note: Callable[[Child], None] = lambda _: None,
    is_quiet: bool = False,
) -> Child:
    """Play in a child, which leaves with the code that `play` returns.

    `prepare` undoes in the child the setup of the owner alone, such as its signal handlers. `note`
    takes the child, in the owner, before a signal can come.
    """
    sys.stdout.flush()
    sys.stderr.flush()

    crash = CrashDump()

    def play_there() -> None:
        crash.write_here()
        if is_quiet:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, sys.stdout.fileno())
            os.dup2(silence, sys.stderr.fileno())
        leave(play())

    child = supervised.fork(
        play_there,
        partial(Child, patience=patience, crash=crash),
        blocked=_PASSED_ON,
        prepare=prepare,
        note=note,
    )
    assert child is not None  # the child itself has left
    return child
