"""The play of a command in a child, and the play of its last scenario in a second one.

Note [The second child starts early]
    A process that blocks in C is silent for 7 seconds before it counts as lost, and a new
    one imports torch for 3 seconds or more. So the second child starts after 2 seconds, when
    the first is only suspected. A word of the first ends the second, which is forgotten, and
    the next suspicion takes twice as long as that silence: a subject that is slow in each
    scenario starts no more than one or two such children.

    The end or the silence of the second child is evidence only if the first did not cause it:
    - It may die while the first lives: two processes need the memory of two. So the scenario
      is played once more, after the first has ended.
    - It may wait for a lock of the first. So a part of its silence has to come after the end
      of the first.
    - It may be silent for no longer than the first was in scenarios that went on. So its
      silence has to be twice as long as that.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from syncverify.command.child import DEFAULT_PATIENCE, Child, Patience, start
from syncverify.processes.supervised import attend
from syncverify.processes.system import end_children


class Plays:
    """The play of a first child, and those of a second and a third one.

    `again` plays the scenario of a token; None if nothing can.
    """

    def __init__(
        self, again: Callable[[str], int] | None, patience: Patience = DEFAULT_PATIENCE
    ) -> None:
        self._again = again
        self._may_be_early = again is not None
        self._patience = patience
        self._first: Child
        self._second: Child | None = None
        self._before: dict[int, Any] = {}

    def first(self, play: Callable[[], int]) -> Child:
        """Play in a child; return how the child ended."""
        with ExitStack() as stack:

            def note(child: Child) -> None:
                self._first = child
                stack.enter_context(self._passing_signals_on())

            first = start(play, self._patience, note=note)
            while not first.is_over(self._patience.silence):
                attend(self._living(), self._patience.tick)
                self._reconsider()
            first.finish()
            if first.code is not None or first.was_interrupted:
                self._forget_second()
        return first

    def again(self) -> Child:
        """Return how the next child ended; the second one may have started already."""
        with self._passing_signals_on():
            second = self._second = self._second or self._start_second()
            alone = second.silence.seconds + self._patience.release
            least = max(self._patience.confirmation, self._suspicion())
            # The silence of the second child that confirms a loss.
            bound = max(min(least, self._patience.silence), alone)
            while not (second.is_finished or second.is_over(bound)):
                attend([second], self._patience.tick)
            second.finish()
        self._second = None
        return second

    def _reconsider(self) -> None:
        """Start a second child if the first is suspect, and forget it after a word."""
        first, suspicion = self._first, self._suspicion()
        is_early = self._may_be_early and suspicion < self._patience.silence
        is_wanted = is_early and first.token and not first.was_interrupted
        if first.silence.seconds < self._patience.suspicion:
            self._forget_second()
        elif self._second is not None:
            self._finish_if_ended(self._second)
        elif is_wanted and first.silence.shows_a_hang(suspicion):
            self._second = self._start_second()

    def _finish_if_ended(self, second: Child) -> None:
        """Keep a second child that has judged; the end of another one proves nothing."""
        if second.has_ended():
            second.finish()
            if second.code is None:
                self._second, self._may_be_early = None, False

    def _suspicion(self) -> float:
        """Return the silence that is suspect: longer than any that a word has ended."""
        return max(self._patience.suspicion, 2 * self._first.silence.longest)

    def _start_second(self) -> Child:
        again, token = self._again, self._first.token
        assert again is not None  # or no play is asked for
        return start(
            lambda: again(token), self._patience, prepare=self._prepare, is_quiet=True
        )

    def _prepare(self) -> None:
        """Leave the owner's part, in the second child."""
        self._restore()
        if not self._first.is_finished:
            self._first.drop()

    def _forget_second(self) -> None:
        if self._second is not None:
            self._second.finish()
        self._second = None

    def _living(self) -> list[Child]:
        """Return the children that live, or whose end nobody has noted."""
        children = (self._first, self._second)
        return [each for each in children if each is not None and not each.is_finished]

    @contextmanager
    def _passing_signals_on(self) -> Iterator[None]:
        handlers: dict[int, Callable[..., object]] = {
            signal.SIGINT: self._interrupt,
            signal.SIGTERM: self._terminate,
            signal.SIGHUP: self._terminate,
            signal.SIGTSTP: self._suspend,
        }
        self._before = {
            number: signal.signal(number, handler)
            for number, handler in handlers.items()
            if signal.getsignal(number) != signal.SIG_IGN  # as under nohup
        }
        try:
            yield
        finally:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: object) -> None:
        for child in self._living():
            child.interrupt()

    def _terminate(self, number: int, _frame: object) -> None:
        """End the children, then this process, by the signal."""
        for child in self._living():
            child.signal(signal.SIGKILL)
        end_children()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(signal.Signals(number))

    def _suspend(self, _number: int, _frame: object) -> None:
        """Stop with the children, as on Ctrl-Z, and go on with them."""
        for child in self._living():
            child.signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for child in self._living():
            child.signal(signal.SIGCONT)
