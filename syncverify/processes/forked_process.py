"""Start processes: from a template that forks them, or as children where no template can."""

import atexit
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from syncverify.import_path import beginning
from syncverify.processes.process_state import LocalProcess
from syncverify.processes.supervised import OwnChild, StartedProcess, Supervised
from syncverify.processes.system import end_when_closed, interrupts_blocked
from syncverify.processes.template import serve, setup_here
from syncverify.processes.wire import Wire

_END_TIMEOUT_SECONDS = 5.0


class ForkedProcess:
    """A process that a template has forked, or soon will."""

    def __init__(self, template: subprocess.Popen[bytes], report: Connection) -> None:
        self._template = template
        self._report = report
        self._pid: int | None = None
        self._code: int | None = None

    @property
    def pid(self) -> int:
        """Id of the process; until it is forked, that of the template."""
        return self.leader or self._template.pid

    @property
    def leader(self) -> int | None:
        """Id of the process and of its group; None until it is forked."""
        if self._pid is None:
            self._hear(0)
        return self._pid

    def has_ended(self) -> bool:
        """Tell whether the process has ended."""
        while self._hear(0):
            pass
        return self._code is not None

    def exit_code(self, seconds: float | None) -> int | None:
        """Return the exit code or the negated signal; None if it has not ended in time."""
        while self._code is None and self._hear(seconds):
            pass
        return self._code

    def _hear(self, seconds: float | None) -> bool:
        """Take what the template tells within some seconds; return False if nothing came."""
        if self._code is not None or not self._report.poll(seconds):
            return False
        try:
            number: int = self._report.recv()
        except (EOFError, OSError):  # the template is gone, and nobody knows the code
            number = self._template.wait(_END_TIMEOUT_SECONDS)
            self._pid = self._pid or self._template.pid
        if self._pid is None:
            self._pid = number
        else:
            self._code = number
            self._report.close()
        return True


class _Template:
    """A running template process and the socket on which it takes requests.

    The number of the template is its hash seed of strings, too.
    """

    def __init__(self, number: int = 0, imports: Sequence[str] = ()) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reading, self._lifeline = Pipe(duplex=False)
        with theirs, reading, interrupts_blocked():
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", beginning(), serve.__module__),
                    *(str(theirs.fileno()), *imports, "torch._dynamo"),
                ],
                pass_fds=[theirs.fileno(), reading.fileno()],
                env=_seeded_environment(number),
                stdin=subprocess.DEVNULL,
            )
            end_when_closed(reading.fileno(), self.process.pid)
        atexit.register(self.close)

    def is_usable(self) -> bool:
        """Tell whether the template can take a request."""
        is_stopped = LocalProcess(self.process.pid).is_stopped()
        return self.process.poll() is None and not is_stopped

    def ask(self, connection: int, lifeline: int) -> Connection:
        """Ask for a process with two descriptors; return the pipe that tells its id and end."""
        ours, report = Pipe(duplex=False)
        with report:
            descriptors = [connection, lifeline, 1, 2, report.fileno()]
            # A template that has just died tells no id: `ForkedProcess` takes its exit code.
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(self.control, [b"x"], descriptors)
        return ours

    def close(self) -> None:
        """End the template; its workers end with the process that asked for them."""
        atexit.unregister(self.close)
        self.process.kill()
        self.process.wait(_END_TIMEOUT_SECONDS)
        self.control.close()
        self._lifeline.close()


# Beginnings of variables that libraries read when they are imported, once for a template.
_READ_BY_IMPORTS = (
    "CUDA", "GLOO", "LD_", "MKL", "NCCL", "OMP", "PYTHONHASHSEED", "TORCH",
)  # fmt: skip
# torch sets it at import, and reads it as it compiles: a worker gets it with its environment.
_SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"
# By process, since a fork shares no template with its parent, by number, and by variables.
_templates: dict[tuple[int, int, frozenset[tuple[str, str]]], _Template] = {}


def prepare(*imports: str) -> None:
    """Start a template now: it imports torch, and modules, while this process does."""
    if hasattr(os, "pidfd_open"):
        _usable(0, imports)


def start(module: str, template: int = 0, *, imports: Sequence[str] = ()) -> Supervised:
    """Start a process that runs `main` of a module.

    Args:
        module: Name of the module; its `main` gets the new process' end of the wire.
        template: Number of the template that forks the process; see
            Note [Processes are forked from a template].
        imports: Modules that the template imports once, beside torch, if it is new.
    """
    ours, theirs = socket.socketpair()
    lifeline, held = os.pipe()
    wire = Wire(ours.detach())
    with theirs, interrupts_blocked():
        process: StartedProcess
        if hasattr(os, "pidfd_open"):
            usable = _usable(template, imports)
            report = usable.ask(theirs.fileno(), lifeline)
            process = ForkedProcess(usable.process, report)
        else:
            process = _spawned(theirs.fileno(), lifeline, template)
        with contextlib.suppress(OSError):  # it has ended already
            wire.send(setup_here(module, _environment()))
    os.close(lifeline)
    return Supervised(process, wire, held)


def _spawned(theirs: int, lifeline: int, number: int) -> StartedProcess:
    started = subprocess.Popen(
        [sys.executable, "-c", beginning(), serve.__module__, str(theirs)],
        pass_fds=[theirs, lifeline],
        env=_seeded_environment(number),
        stdin=subprocess.DEVNULL,
        process_group=0,
    )
    end_when_closed(lifeline, -started.pid)
    started.returncode = 0  # `OwnChild` waits for the process, and `Popen` shall not
    return OwnChild(started.pid)


def _usable(number: int, imports: Sequence[str]) -> _Template:
    """Return a template of the variables as they are now; start it if there is none."""
    read = frozenset(
        (name, value)
        for name, value in _environment().items()
        if name.startswith(_READ_BY_IMPORTS) and name != _SET_BY_TORCH
    )
    key = (os.getpid(), number, read)
    if key in _templates and not _templates[key].is_usable():
        _templates.pop(key).close()
    if key not in _templates:
        _templates[key] = _Template(number, imports)
    return _templates[key]


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _seeded_environment(number: int) -> dict[str, str]:
    """Return the environment of a template; it has the same hash seed in each run.

    A seed that the user sets is that of all templates, as it is that of all ranks of torchrun.
    """
    return {"PYTHONHASHSEED": str(number + 1), **_environment()}
