"""Processes that a template forks, seen by the process that asked for them."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from syncverify.processes.child_process import end_when_closed, interrupts_blocked
from syncverify.processes.process_state import is_stopped
from syncverify.processes.template import Setup

_MODULES = ("syncverify.backends.worker", "torch._dynamo")
_END_TIMEOUT_SECONDS = 5.0


class ForkedProcess:
    """A process that a template has forked, or soon will; like `subprocess.Popen`.

    Attributes:
        returncode: The exit code, or the negated signal; None while the process lives.
    """

    def __init__(self, template: subprocess.Popen[bytes], report: Connection) -> None:
        self._template = template
        self._report = report
        self._pid: int | None = None
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        """Id of the process; until it is forked, that of the template."""
        self._hear(0)
        return self._pid or self._template.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while the process lives."""
        while self._hear(0):
            pass
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit code.

        Raises:
            subprocess.TimeoutExpired: The process has not ended within the seconds.
        """
        while self.returncode is None:
            if not self._hear(timeout):
                raise subprocess.TimeoutExpired("a worker process", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, once it is there."""
        while self._pid is None and self.returncode is None:
            self._hear(None)
        if self.poll() is None:
            os.kill(self.pid, number)

    def _hear(self, timeout: float | None) -> bool:
        """Take what the template tells within some seconds; return False if nothing came."""
        if self.returncode is not None or not self._report.poll(timeout):
            return False
        try:
            number: int = self._report.recv()
        except (EOFError, OSError):  # the template is gone, and nobody knows the code
            number = self._template.wait(_END_TIMEOUT_SECONDS)
            self._pid = self._pid or self._template.pid
        if self._pid is None:
            self._pid = number
        else:
            self.returncode = number
            self._report.close()
        return True


class _Template:
    """A running template process and the socket on which it takes requests."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reading, self._lifeline = Pipe(duplex=False)
        with theirs, reading, interrupts_blocked():
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "syncverify.processes.template"),
                    *(str(theirs.fileno()), *_MODULES),
                ],
                pass_fds=[theirs.fileno(), reading.fileno()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
            )
            end_when_closed(reading.fileno(), self.process.pid)
        atexit.register(self.close)

    def is_usable(self) -> bool:
        """Tell whether the template can take a request."""
        return self.process.poll() is None and not is_stopped(self.process.pid)

    def ask(self, connection: int, lifeline: int) -> Connection:
        """Ask for a process with two descriptors; return where its end is told."""
        ours, report = Pipe(duplex=False)
        with report:
            descriptors = [connection, lifeline, 1, 2, report.fileno()]
            # A template that has just died tells no id: `ForkedProcess` takes its exit code.
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(self.control, [b"x"], descriptors)
        return ours

    def close(self) -> None:
        """End the template; its workers end by the process that asked for them."""
        atexit.unregister(self.close)
        self.process.kill()
        self.process.wait(_END_TIMEOUT_SECONDS)
        self.control.close()
        self._lifeline.close()


# Beginnings of variables that libraries read when they are imported, once for a template.
_READ_BY_IMPORTS = (
    "CUDA",
    "GLOO",
    "LD_",
    "MKL",
    "NCCL",
    "OMP",
    "PYTHONHASHSEED",
    "TORCH",
)
# By process, since a fork shares no template with its parent, by number, and by variables.
_templates: dict[tuple[int, int, frozenset[tuple[str, str]]], _Template] = {}


def start_process(
    module: str, connection: Connection, theirs: int, lifeline: int, number: int
) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start a process that runs `main` of a module, as the leader of a process group.

    Args:
        module: Name of the module.
        connection: The parent's end of the connection to the process.
        theirs: The descriptor of the other end, which `main` gets.
        lifeline: A descriptor with which the process ends; see `end_when_closed`.
        number: Number of the template.

    Returns:
        The process.
    """
    if hasattr(os, "pidfd_open"):
        return _forked(module, connection, theirs, lifeline, number)
    started = subprocess.Popen(
        [sys.executable, "-m", module, str(theirs)],
        pass_fds=[theirs, lifeline],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        process_group=0,
    )
    end_when_closed(lifeline, -started.pid)
    return started


def _forked(
    module: str, connection: Connection, theirs: int, lifeline: int, number: int
) -> ForkedProcess:
    variables = _environment().items()
    read = frozenset(each for each in variables if each[0].startswith(_READ_BY_IMPORTS))
    key = (os.getpid(), number, read)
    if key in _templates and not _templates[key].is_usable():
        _templates.pop(key).close()
    if key not in _templates:
        _templates[key] = _Template()
    template = _templates[key]
    report = template.ask(theirs, lifeline)
    setup = Setup(module, str(Path.cwd()), _environment(), _import_path())
    with contextlib.suppress(OSError):  # it has ended already
        connection.send(setup)
    return ForkedProcess(template.process, report)


def _environment() -> dict[str, str]:
    changes = {"PYTHONPATH": os.pathsep.join(_import_path()), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **changes}


def _import_path() -> list[str]:
    # Workers import the same modules as the parent: the subject may live in the working
    # directory of the parent.
    return [path or str(Path.cwd()) for path in sys.path]
