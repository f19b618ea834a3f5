"""The template process: it imports modules once, and forks a worker for each request.

Note [Processes are forked from a template]
    An import of torch takes three seconds of processor time, and a fork takes 0.03 s. The
    process that plays scenarios cannot fork workers: its threads do not survive a fork. So it
    starts a template, which has one thread, runs no code of subjects, and forks workers.

    Forked processes share the hash seed of strings and the addresses of modules, so that
    sets have the same order there. Processes on a cluster share neither. So neighbouring
    ranks come from two templates, and those of a script from four: a program that depends on
    such an order still fails. A template has the same seed in each run, so that two runs agree.

    A worker is no child of the process that asked. The template tells its id, and later its
    exit code, on a pipe of that worker.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

from syncverify.import_path import import_path, take_over, user_folders
from syncverify.processes.stack_dump import dump_on_request
from syncverify.processes.system import end_when_closed
from syncverify.processes.wire import Wire

# Descriptors of a request: the worker's connection, its lifeline, stdout, stderr, and the
# pipe on which the template tells how the worker fares.
_NUM_DESCRIPTORS = 5


class Setup(NamedTuple):
    """The state that a worker takes over from the process that wants it."""

    module: str  # its `main` gets the wire to the process that asked
    directory: str
    environment: Mapping[str, str]
    import_path: list[str]
    user_folders: frozenset[str]


def setup_here(module: str, environment: Mapping[str, str]) -> Setup:
    """Return the state of this process, for a worker that runs `main` of a module."""
    return Setup(module, str(Path.cwd()), environment, import_path(), user_folders())


def _become_worker(wire: Wire) -> None:
    """Take over the state that the first message holds, and run the module's `main`."""
    try:
        setup: Setup = wire.receive()
    except EOFError:
        return  # ended before it began
    os.environ.clear()
    os.environ.update(setup.environment)
    os.chdir(setup.directory)
    take_over(setup.import_path, setup.user_folders)
    importlib.invalidate_caches()
    importlib.import_module(setup.module).main(wire)


def serve(control: socket.socket) -> Wire:
    """Fork a worker for each request; return in a worker only.

    Raises:
        SystemExit: The process that asks for workers is gone.
    """
    # Id of a worker and the pipe for its exit code, by the descriptor that tells of its end.
    reports: dict[int, tuple[int, Connection]] = {}
    while True:
        for ready in wait([control, *reports]):
            if isinstance(ready, int):
                pid, report = reports.pop(ready)
                with report:
                    _tell(report, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(ready)
                continue
            _, descriptors, _, _ = socket.recv_fds(control, 1, _NUM_DESCRIPTORS)
            if not descriptors:
                sys.exit()  # the process that asked is gone
            pid = os.fork()
            if not pid:
                # Not by its number alone: at its end the socket would close a descriptor that
                # has that number by then.
                control.close()
                for descriptor in reports:
                    os.close(descriptor)
                return _worker_side(descriptors)
            report = Connection(descriptors.pop())
            for descriptor in descriptors:
                os.close(descriptor)
            with contextlib.suppress(OSError):  # the worker has done it, or has ended
                os.setpgid(pid, pid)
            _tell(report, pid)
            reports[os.pidfd_open(pid)] = (pid, report)


def _tell(report: Connection, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody asks for the worker any more
        report.send(number)


def _worker_side(descriptors: Sequence[int]) -> Wire:
    """Lead a process group that ends with the process that asked; return the wire to it."""
    connection, lifeline, out, err, report = descriptors
    os.setpgid(0, 0)
    end_when_closed(lifeline, -os.getpid())
    dump_on_request(connection)
    os.dup2(out, sys.stdout.fileno())
    os.dup2(err, sys.stderr.fileno())
    for descriptor in (out, err, report):
        os.close(descriptor)
    return Wire(connection)


def main() -> None:
    """Import the modules that the arguments name, and serve on an inherited socket.

    Without such modules this process is itself the worker, at the end of the socket.
    """
    # Ctrl-C is for the process that asks.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # A subject may ignore the signal in the process that asks. This process inherits that, and
    # would get no exit code of a worker.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    descriptor, *modules = sys.argv[1:]
    if not modules:
        _become_worker(Wire(int(descriptor)))
        return
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # the collector of a worker looks at no object from here
    _become_worker(serve(socket.socket(fileno=int(descriptor))))
