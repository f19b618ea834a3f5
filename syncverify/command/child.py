"""A child process that plays for its owner, as the owner hears and sees it."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from syncverify.processes.child_process import end_when_closed, interrupts_blocked
from syncverify.processes.owner_link import SILENCE_SECONDS, Word, link_to_owner
from syncverify.processes.process_state import is_stopped, why_silent
from syncverify.processes.silence import Silence
from syncverify.processes.stack_dump import dump_on_request, take_dump
from syncverify.processes.stillness import Stillness
from syncverify.trace.source_lines import CodeLine, frames_in_dump


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an owner waits for its children, in seconds.

    Attributes:
        tick: Between two looks at children that are silent.
        start: Silence before the first scenario. An import of torch from a slow disk is silent.
        silence: Silence after which a child in a scenario may be lost.
        suspicion: Silence after which a second child plays the scenario as well.
        confirmation: Silence of the second child that confirms a loss.
        release: Part of that silence in which the first child has ended. The second one may
            have waited for a lock of the first.
        stillness: Sleep of the child and all that it started, after which it is lost. Under
            torchrun a rank may wait for other machines, which have bounds of their own.
        grace: From Ctrl-C, or the end of a command, to the end of the child. It is more than
            the child takes for its own grace.
    """

    tick: float = 0.5
    start: float = 120.0
    silence: float = SILENCE_SECONDS
    suspicion: float = 2.0
    confirmation: float = 3.0
    release: float = 1.5
    stillness: float = 60.0 if "TORCHELASTIC_RUN_ID" not in os.environ else math.inf
    grace: float = 8.0


DEFAULT_PATIENCE = Patience()

# The owner passes these on, and cannot before it knows its child, which may play already.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)


@dataclass(slots=True)
class End:
    """The end of a child.

    Attributes:
        code: The exit code that the child told; None if it was lost.
        cause: `process_died` or `never_returns`, if it was lost.
        how: The end in words.
        lines: The subject's lines in a process that kept Python from running.
        token: Token of the last scenario that started, or "".
        num_runs: Number of scenarios that started.
        was_interrupted: Whether the user asked for the end.
        has_found: Whether a search had ended, and had told violations.
    """

    code: int | None = None
    cause: str = "process_died"
    how: str = ""
    lines: list[CodeLine] = field(default_factory=list)
    token: str = ""
    num_runs: int = 0
    was_interrupted: bool = False
    has_found: bool = False


class Child:
    """A child, heard on a pipe, which leads a process group and ends with its owner.

    Args:
        pid: The child.
        reading: Reading end of the pipe on which the child talks.
        lifeline: Writing end of a pipe, with which the child ends.
        patience: How long the owner waits.
        key: First word of each line of the child. A subject that writes to descriptors at
            random says nothing to the owner.

    Attributes:
        end: What is known of the end of the child.
        silence: The present silence of the child.
        stillness: The present stillness of the child.
    """

    def __init__(
        self, pid: int, reading: int, lifeline: int, patience: Patience, key: str
    ) -> None:
        self._pid = pid
        self._reading = reading
        self._lifeline = lifeline
        self._patience = patience
        self._key = key
        self._deadline = float("inf")
        self._rest = b""
        self.end = End()
        self.silence = Silence(pid)
        self.stillness = Stillness(pid, patience.stillness)

    def has_ended(self) -> bool:
        """Tell whether the process has ended by itself."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, options) is not None

    def is_over(self, bound: float) -> bool:
        """Tell whether the child has ended or has to be ended.

        Args:
            bound: Seconds of silence in a scenario after which a child may be lost.

        Returns:
            Whether it has.
        """
        if self.has_ended() or time.monotonic() > self._deadline:
            return True
        bound = bound if self.end.token else self._patience.start
        if self.silence.shows_a_hang(bound):
            self._note_loss(why_silent(self._pid))
            return True
        if self.stillness.seconds >= self._patience.stillness:
            self._note_loss(f"has slept for {self._patience.stillness:.0f} s")
            del self.end.lines[:-1]  # above the innermost line is the command itself
            return True
        return False

    def _note_loss(self, how: str) -> None:
        """Note where a lost child is, which ends it unless a signal has stopped it."""
        self.end.cause = "never_returns"
        self.end.how = how
        if not is_stopped(self._pid):
            self.end.lines = frames_in_dump(take_dump(self._pid, self._reading))

    def hear(self) -> bool:
        """Read what the child tells; return False if the pipe has ended."""
        data = os.read(self._reading, 2**16)
        if not data:
            return False
        self.silence.end()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            key, _, rest = line.decode(errors="replace").partition(" ")
            word, _, text = rest.partition(" ")
            if key != self._key:
                continue
            if word != "alive":
                self.stillness.end()
            if word == "plays":
                self.end.token = text
                self.end.num_runs += 1
            elif word == "found":
                self.end.has_found = True
            elif word == "lost":
                self.end.cause, _, self.end.how = text.partition(" ")
            elif word == "ends":
                self.end.code = int(text)
                self._deadline = time.monotonic() + self._patience.grace
        return True

    def finish(self) -> End:
        """End the child and its process group; return how it ended."""
        while _readable([self._reading], 0) and self.hear():
            pass
        self.send(signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        reason = f"signal {-status}" if status < 0 else f"exit code {status}"
        self.end.how = self.end.how or f"ended by {reason}"
        self.drop()
        return self.end

    def drop(self) -> None:
        """Close the pipes; the child ends by that too, if no process has them any more."""
        os.close(self._reading)
        os.close(self._lifeline)

    def interrupt(self) -> None:
        """Pass Ctrl-C on; the second one, or the end of the grace, ends the child."""
        grace = 0.0 if self.end.was_interrupted else self._patience.grace
        self.end.was_interrupted = True
        self._deadline = time.monotonic() + grace
        self.send(signal.SIGINT)

    def send(self, number: int) -> None:
        """Send a signal to the child and all that it started."""
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(self._pid, number)
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(self._pid) != self._pid:  # the subject has moved it
                os.kill(self._pid, number)

    def fileno(self) -> int:
        """Return the descriptor on which the child is heard."""
        return self._reading


def attend(children: Iterable[Child], tick: float) -> None:
    """Hear children, and note which of them are silent, for a tick at most."""
    began = time.monotonic()
    speaking = _readable(children, tick)
    passed = min(time.monotonic() - began, tick)  # less than the clock says on Ctrl-Z
    for child in children:
        child.stillness.go_on(passed)
        if child not in speaking:
            child.silence.go_on(passed)
        elif not child.hear():
            time.sleep(tick / 50)  # the child is about to end
            child.silence.go_on(tick / 50)


def _readable(children: Iterable[Child | int], seconds: float) -> list[Child | int]:
    return select.select(list(children), [], [], seconds)[0]


def start(
    play: Callable[[], None],
    patience: Patience,
    *,
    prepare: Callable[[], None] = lambda: None,
    note: Callable[[Child], None] = lambda _: None,
    is_quiet: bool = False,
) -> Child | None:
    """Play in a child.

    Args:
        play: Plays, in the child.
        patience: How long the owner waits.
        prepare: Undoes there what concerns the owner alone, such as its signal handlers.
        note: Takes the child, in the owner, before a signal can come.
        is_quiet: Whether the child prints nothing.

    Returns:
        The child, and None in the child itself.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    key = os.urandom(8).hex()
    reading, writing = os.pipe()
    lifeline, held = os.pipe()
    with interrupts_blocked(*_PASSED_ON):
        pid = os.fork()
        if pid:
            note(child := Child(pid, reading, held, patience, key))
        else:
            prepare()
    if pid:
        os.close(writing)
        os.close(lifeline)
        return child
    os.close(reading)
    os.close(held)
    os.setpgid(0, 0)
    end_when_closed(lifeline, -os.getpid())
    _link(writing, key)
    dump_on_request(writing)
    if is_quiet:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, sys.stdout.fileno())
        os.dup2(silence, sys.stderr.fileno())
    play()
    return None


def _link(descriptor: int, key: str) -> None:
    """Connect this process with the owner that reads a pipe, and knows the key."""
    lock = threading.Lock()

    def write(word: Word, text: str) -> None:
        # The first break ends what the subject may have written there.
        line = f"\n{key} {word} {text}\n".encode()
        with lock:
            while line:
                line = line[os.write(descriptor, line) :]

    link_to_owner(write)
