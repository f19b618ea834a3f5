"""One supervised process: how it starts, what it says, when its silence is a hang, how it ends.

| process | start | words |
|---|---|---|
| child of the owner of a command | `fork` | `owner_link` |
| rank of the `gloo` backend | `start`, from a template | `playing/messages.py` |
| rank of the `streams` backend, or of a script | `start`, from a template | `sim/apart/messages.py` |
| process of `--jobs` | `start`, from a template | `calls.py`, `owner_link` |

Each process leads a process group, which ends with the process that started it: see
Note [A child ends with its parent].
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol, TypeVar

import psutil
from typing_extensions import override

from syncverify.processes import silence
from syncverify.processes.owner_link import Alive, Lost, Starts, link_to_owner
from syncverify.processes.process_state import LocalProcess, words_of_silence
from syncverify.processes.stack_dump import dump_on_request, take_dump
from syncverify.processes.system import end_when_closed, interrupts_blocked
from syncverify.processes.wire import Wire

_END_SECONDS = 5.0


class StartedProcess(Protocol):
    """A process of this machine, as `Supervised` needs it."""

    @property
    def pid(self) -> int:
        """Id of the process."""

    @property
    def leader(self) -> int | None:
        """Id of its process group; None while the process is not there yet."""

    def has_ended(self) -> bool:
        """Tell whether the process has ended by itself."""

    def exit_code(self, seconds: float) -> int | None:
        """Return its exit code or negated signal; None if it has not ended in time."""


class OwnChild:
    """A child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = self.leader = pid
        self._process = psutil.Process(pid)
        self._code: int | None = None

    def has_ended(self) -> bool:
        """Tell whether the child has ended; its id stays taken until `exit_code`."""
        if self._code is not None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, options) is not None

    def exit_code(self, seconds: float) -> int | None:
        """Return the exit code or the negated signal; None if it has not ended in time."""
        if self._code is None:
            with contextlib.suppress(psutil.TimeoutExpired):
                self._code = self._process.wait(seconds)
        return self._code


@dataclass(frozen=True, slots=True)
class HungUp:
    """The last word of a process: nothing more can be heard from it."""


class Supervised(LocalProcess):
    """A process that plays for this one.

    It ends with a pipe, of which `lifeline` is the writing end. `tick` is the least number of
    seconds between two looks at a silent process.
    """

    def __init__(
        self,
        process: StartedProcess,
        wire: Wire,
        lifeline: int,
        *,
        tick: float = silence.TICK_SECONDS,
    ) -> None:
        self.process = process
        self._wire = wire
        self._lifeline = lifeline
        self.silence = silence.Silence(self, tick=tick)
        self.token = ""  # of the last scenario that started there
        self.num_runs = 0  # scenarios that started
        self.num_jobs = 0  # how often a pool gave the process away

    @property
    @override
    def pid(self) -> int:  # type: ignore[override]  # that of a template at first
        return self.process.pid

    def fileno(self) -> int:
        """Return the descriptor on which the process is heard."""
        return self._wire.fileno()

    def send(self, message: object) -> None:
        """Send a value; nothing to a process that is gone, which is heard next."""
        with contextlib.suppress(OSError):
            self._wire.send(message)

    def hear(self) -> list[Any]:
        """Return the words that came, without signs of life; `[HungUp()]` after the last."""
        try:
            found = self._wire.hear()
        except EOFError:
            return [HungUp()]
        self.silence.end()
        for message in found:
            if isinstance(message, Starts):
                self.token = message.token
                self.num_runs += 1
        return [message for message in found if not isinstance(message, Alive)]

    def note_time(self, seconds: float, *, is_silent: bool) -> None:
        """Note some seconds that passed, and whether the process was silent."""
        if is_silent:
            self.silence.go_on(seconds)

    def is_stuck(self, bound: float = silence.SILENCE_SECONDS) -> bool:
        """Tell whether the process hangs, after a silence as long as the bound."""
        # Before the first scenario, an import of torch from a slow disk is silent as well.
        return self.silence.shows_a_hang(bound if self.token else silence.START_SECONDS)

    def stacks(self) -> str:
        """Return the stacks of a process that does not answer, and end it; "" if stopped."""
        return "" if self.is_stopped() else take_dump(self.pid, self.fileno())

    def has_ended(self) -> bool:
        """Tell whether the process has ended by itself."""
        return self.process.has_ended()

    def exit_reason(self) -> str:
        """Return how a process ended that cannot be heard: its signal or its exit code."""
        code = self.process.exit_code(_END_SECONDS)
        if code is None:
            return "the end of its connection"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def ended(self) -> Lost:
        """Return the loss of a process that cannot be heard."""
        code = self.process.exit_code(_END_SECONDS) or 0
        how = f"ended by {self.exit_reason()}"
        return Lost("process_died", how, signal=max(0, -code))

    def hung(self) -> Lost:
        """Return the loss of a process that does not answer."""
        is_stopped = self.is_stopped()
        how = words_of_silence(is_stopped=is_stopped)
        return Lost("never_returns", how, is_stopped=is_stopped)

    def signal(self, number: int) -> None:
        """Send a signal to the process and all that it has started."""
        leader = self.process.leader
        if leader is None:
            return  # it ends once it is there: its connection is closed
        # The group and its number live as long as any child of the subject.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, number)
        with contextlib.suppress(ProcessLookupError):
            if not self.has_ended() and os.getpgid(leader) != leader:
                os.kill(leader, number)  # the subject has moved it

    def end(self) -> None:
        """End the process, and all that the subject started there, by SIGKILL."""
        self.signal(signal.SIGKILL)
        self.drop()
        self.process.exit_code(_END_SECONDS)

    def drop(self) -> None:
        """Close the connection; the process ends by that, if no other one has it open."""
        self._wire.close()
        os.close(self._lifeline)


Kind = TypeVar("Kind", bound=Supervised)


def heard_from(processes: Sequence[Kind], seconds: float) -> list[Kind]:
    """Return the processes that can be heard, as soon as one can, within some seconds."""
    return wait(processes, seconds)  # type: ignore[arg-type, return-value]


def attend(
    processes: Sequence[Kind], seconds: float = silence.TICK_SECONDS
) -> list[tuple[Kind, Any]]:
    """Hear processes, and note which of them are silent, for some seconds at most."""
    began = time.monotonic()
    ready = heard_from(processes, seconds)
    # Less than the clock says after Ctrl-Z.
    passed = min(time.monotonic() - began, seconds)
    heard = [
        (each, word) for each in processes if each in ready for word in each.hear()
    ]
    hung_up = [each for each, word in heard if isinstance(word, HungUp)]
    if hung_up:
        pause = min(seconds, silence.TICK_SECONDS) / 50
        time.sleep(pause)  # the process is about to end
        passed += pause
    for each in processes:
        each.note_time(passed, is_silent=each not in ready or each in hung_up)
    return heard


def fork(
    play: Callable[[], object],
    make: Callable[[StartedProcess, Wire, int], Kind],
    *,
    blocked: Sequence[signal.Signals] = (),
    prepare: Callable[[], object] = lambda: None,
    note: Callable[[Kind], object] = lambda _: None,
) -> Kind | None:
    """Play in a fork of this process; return the child, and None in the child itself.

    Args:
        blocked: Signals that wait, beside SIGINT, until the child is noted.
        prepare: Undoes in the child the settings of this process alone, such as signal handlers.
        note: Takes the child, in this process, before a signal can come.
    """
    reading, writing = os.pipe()
    lifeline, held = os.pipe()
    with interrupts_blocked(*blocked):
        pid = os.fork()
        if pid:
            note(child := make(OwnChild(pid), Wire(reading), held))
        else:
            prepare()
    for descriptor in (writing, lifeline) if pid else (reading, held):
        os.close(descriptor)
    if pid:
        return child
    os.setpgid(0, 0)
    end_when_closed(lifeline, -os.getpid())
    link_to_owner(Wire(writing).send)
    dump_on_request(writing)
    play()
    return None
