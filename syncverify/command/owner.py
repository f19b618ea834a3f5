"""The owner of a command: the process that decides how the command ends.

Note [Who owns the end of a command]
    Subjects run in the process that plays scenarios: they can exit it, crash it, stop it, or
    keep Python in it from running, and then no code there says anything, or says 0. So that
    process is a child. The owner stays small: it imports no torch, and forks the child
    before torch is there. The owner passes signals on, and hears on a pipe which scenario
    starts, that Python runs, and with which code the command ends. Exit codes count only
    when they were told that way. A child that ends without a code, or falls silent, is lost:
    the scenario is played once more in a new child. Lost again, the scenario is a violation;
    otherwise there is no verdict, and the exit code is 3.

    The child leads a process group, which ends with it: children of the subject too. The
    kernel ends the group if the owner is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import click

from syncverify.command.process_exit import (
    COMMAND_NAME,
    HARNESS_FAILED,
    INTERRUPTED,
    VIOLATION,
    complain,
    leave_at_once,
)
from syncverify.plain_text import plain
from syncverify.processes.child_process import end_when_closed
from syncverify.processes.hang_detector import HangDetector
from syncverify.processes.owner_link import SILENCE_SECONDS, Word, link_to_owner
from syncverify.processes.process_state import is_stopped, processor_seconds, why_silent
from syncverify.processes.stack_dump import dump_on_request, take_dump
from syncverify.scenario.token import renamed
from syncverify.trace.source_lines import frames_in_dump

_IMPORT_WINDOWS = 12
_TICK_SECONDS = 0.5
_GRACE_SECONDS = 8.0  # after Ctrl-C; more than the child takes for its own grace
_PROPERTIES = {
    "process_died": "every_rank_finishes",
    "never_returns": "every_wait_completes",
}

Record = Callable[[str, str, list[str], int], None]


@dataclass(slots=True)
class _End:
    """The end of a child.

    Attributes:
        code: The exit code that the child told; None if it was lost.
        cause: `process_died` or `never_returns`, if it was lost.
        how: The end in words.
        lines: The subject's lines in a process that kept Python from running.
        token: Token of the last scenario that started, or "".
        num_runs: Number of scenarios that started.
        was_interrupted: Whether the user asked for the end.
    """

    code: int | None = None
    cause: str = "process_died"
    how: str = ""
    lines: list[str] = field(default_factory=list)
    token: str = ""
    num_runs: int = 0
    was_interrupted: bool = False


def owned(
    play: Callable[[], None],
    again: Callable[[str], None] | None,
    replay_line: str,
    record: Record | None = None,
) -> None:
    """Play in a child process, and end this process with the verdict of the child.

    A process that has torch already, as in a test, plays by itself: threads do not survive
    a fork.

    Args:
        play: Plays, and leaves by `process_exit`.
        again: Plays the scenario of a token in the same way; None if it needs more than
            the token, so that a lost process gives no verdict.
        replay_line: The command that plays a token, with `{}` in the place of the token.
        record: Saves a violation that loses the process, from its token, its summary, the
            subject's lines and the number of scenarios that started. It runs in a child too.
    """
    _refuse_restart()
    if "torch" in sys.modules or not hasattr(os, "fork"):
        play()
        return
    end = _in_child(play)
    if end is not None:
        _leave_as(end, again, replay_line, record)


def _refuse_restart() -> None:
    """Leave the verdict to the first start of a torchrun job that torchrun restarts.

    torchrun takes exit code 1 for a crash, starts the job again with --max-restarts, and
    ends with the code of the last start.
    """
    count = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if count and os.environ["LOCAL_RANK"] == "0":
        complain(
            COMMAND_NAME,
            f"torchrun starts this job again (restart {count}), and nothing is played: the "
            "verdict of the first start is above; use --max-restarts 0",
            HARNESS_FAILED,
        )
    if count:
        sys.exit(HARNESS_FAILED)


def _leave_as(
    end: _End,
    again: Callable[[str], None] | None,
    replay_line: str,
    record: Record | None,
) -> NoReturn:
    _leave_if_decided(end)
    if not end.token:
        _leave_without_verdict(f"that plays {end.how} before its first scenario")
    line = replay_line.format(end.token)
    said = f"{end.how} in run {end.num_runs}; to play that one: {line}"
    said += _listed(end.lines)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _leave_without_verdict(
            f"of rank {os.environ['RANK']} {said}\n"
            "Under torchrun no other process can play it again."
        )
    if again is None:
        _leave_without_verdict(f"that plays {said}")
    second = _in_child(lambda: again(end.token), is_quiet=True)
    if second is None:  # the second child, whose play has ended
        sys.exit()
    if second.was_interrupted:
        _leave_if_decided(second)
    if second.code is not None:
        _leave_without_verdict(
            f"that plays {said}\n"
            "A new process ends that run, so nothing is known of what came before."
        )
    name = _PROPERTIES[second.cause]
    token = renamed(end.token, name, second.cause)
    summary = (
        f"the process that plays the ranks {second.how}, in two runs of one scenario"
    )
    click.echo(
        f"VIOLATION: {name} ({second.cause})\n"
        f"  {summary}{_listed(second.lines)}\n\n"
        f"  replay:     {replay_line.format(token)}\n\n"
        f"1 VIOLATION: found in run {end.num_runs}, which ended the search"
    )
    if record is not None:
        _in_child(
            lambda: _recorded(
                lambda: record(token, summary, second.lines, end.num_runs)
            )
        )
    sys.exit(VIOLATION)


def _leave_without_verdict(words: str) -> NoReturn:
    complain(COMMAND_NAME, f"no verdict: the process {words}", HARNESS_FAILED)


def _listed(lines: Iterable[str]) -> str:
    """Return lines of the subject for the end of a text, where a report lists them."""
    return "".join(f"\n              {plain(line)}" for line in lines)


def _recorded(record: Callable[[], None]) -> NoReturn:
    record()
    leave_at_once(VIOLATION)


def _leave_if_decided(end: _End) -> None:
    """Leave with the code that the child told, or as interrupted."""
    if end.was_interrupted and end.code is None:
        words = "the process that played did not answer; what was found is above"
        complain(COMMAND_NAME, f"interrupted; {words}", INTERRUPTED)
    if end.code is not None:
        sys.exit(end.code)


def _in_child(play: Callable[[], None], *, is_quiet: bool = False) -> _End | None:
    """Play in a child; return how the child ended, and None in the child itself."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    lifeline, held = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        os.close(lifeline)
        with os.fdopen(held, "wb"), os.fdopen(reading, "rb"):
            return _Watch(pid, reading).end()
    os.close(reading)
    os.close(held)
    os.setpgid(0, 0)
    end_when_closed(lifeline, -os.getpid())
    _link(writing)
    dump_on_request(writing)
    if is_quiet:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, sys.stdout.fileno())
        os.dup2(silence, sys.stderr.fileno())
    play()
    return None


def _link(descriptor: int) -> None:
    """Connect this process with the owner that reads a pipe."""
    lock = threading.Lock()

    def write(word: Word, text: str) -> None:
        line = f"{word} {text}\n".encode()
        with lock:
            while line:
                line = line[os.write(descriptor, line) :]

    link_to_owner(write)


class _Watch:
    """Hears and sees a child until it ends, or ends it.

    Args:
        pid: The child, which leads a process group.
        descriptor: Reading end of its pipe.
    """

    def __init__(self, pid: int, descriptor: int) -> None:
        self._pid = pid
        self._descriptor = descriptor
        self._end = _End()
        self._deadline = float("inf")
        self._silence_seconds = 0.0
        self._num_windows = 0
        self._rest = b""
        self._detector = HangDetector(
            SILENCE_SECONDS, lambda: 0, lambda: processor_seconds(pid)
        )

    def end(self) -> _End:
        """Return how the child ended; its process group has ended as well."""
        with self._passing_signals_on():
            while not self._has_ended() and not self._is_over():
                if select.select([self._descriptor], [], [], _TICK_SECONDS)[0]:
                    self._hear()
                else:
                    self._silence_seconds += _TICK_SECONDS
            self._hear_the_rest()
            self._send(signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        reason = f"signal {-status}" if status < 0 else f"exit code {status}"
        self._end.how = self._end.how or f"ended by {reason}"
        return self._end

    def _has_ended(self) -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, options) is not None

    def _hear(self) -> bool:
        """Read what the child tells; return False at the end of the pipe."""
        data = os.read(self._descriptor, 2**16)
        if not data:
            time.sleep(_TICK_SECONDS / 50)  # the child is about to end
            return False
        self._silence_seconds, self._num_windows = 0.0, 0
        self._detector.renew()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, _, text = line.decode().partition(" ")
            if word == "plays":
                self._end.token = text
                self._end.num_runs += 1
            elif word == "lost":
                self._end.cause, _, self._end.how = text.partition(" ")
            elif word == "ends":
                self._end.code = int(text)
                self._deadline = time.monotonic() + _GRACE_SECONDS
        return True

    def _hear_the_rest(self) -> None:
        while select.select([self._descriptor], [], [], 0)[0] and self._hear():
            pass

    def _is_over(self) -> bool:
        """Tell whether the child has to be ended."""
        if time.monotonic() > self._deadline:
            return True
        if self._silence_seconds < SILENCE_SECONDS:
            return False
        self._silence_seconds = 0.0
        self._num_windows += 1
        # The import of torch from a slow disk is silent as well.
        may_import = not self._end.token and self._num_windows < _IMPORT_WINDOWS
        if may_import or not self._detector.is_over():
            return False
        self._end.cause = "never_returns"
        self._end.how = why_silent(self._pid)
        if not is_stopped(self._pid):
            dump = take_dump(self._pid, self._descriptor)
            self._end.lines = frames_in_dump(dump)
        return True

    @contextmanager
    def _passing_signals_on(self) -> Iterator[None]:
        handlers: dict[int, Callable[..., object]] = {
            signal.SIGINT: self._interrupt,
            signal.SIGTERM: self._terminate,
            signal.SIGHUP: self._terminate,
            signal.SIGTSTP: self._suspend,
        }
        before = {
            number: signal.signal(number, handler)
            for number, handler in handlers.items()
            if signal.getsignal(number) != signal.SIG_IGN  # as under nohup
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: object) -> None:
        """Pass Ctrl-C on; the second one, or the end of the grace, ends the child."""
        grace = 0.0 if self._end.was_interrupted else _GRACE_SECONDS
        self._end.was_interrupted = True
        self._deadline = time.monotonic() + grace
        self._send(signal.SIGINT)

    def _terminate(self, number: int, _frame: object) -> None:
        """End the child, then this process, by the signal."""
        self._send(signal.SIGKILL)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(signal.Signals(number))

    def _suspend(self, _number: int, _frame: object) -> None:
        """Stop with the child, as on Ctrl-Z, and go on with it."""
        self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._send(signal.SIGCONT)
        self._silence_seconds = 0.0

    def _send(self, number: int) -> None:
        """Send a signal to the child and all that it started."""
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(self._pid, number)
