"""Real rank processes that die or hang: a verdict on the right rank, and new processes."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest
import torch.distributed as dist

from syncverify.playing.gloo import GlooBackend
from syncverify.processes.process_state import words_of_silence
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from syncverify.trace.source_lines import CodeLine, shown_path
from tests.programs import one_parameter

PAIR = one_parameter(2, "w", (5,))


class Naive(PlainGrads):
    """Sums gradients in wait(); rank 1 can misbehave before that."""

    def wait(self) -> None:
        if dist.get_rank() == 1:
            self.misbehave()
        super().wait()

    def misbehave(self) -> None: ...


class StopsItself(Naive):
    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        # Another thread takes the signal, on a busy machine some time later. Until then
        # this one runs, and it could end the step.
        time.sleep(1000)


class KeepsTheGil(Naive):
    def misbehave(self) -> None:
        ctypes.PyDLL(None).sleep(1000)


class DiesBesideItsChild(Naive):
    """The child keeps the connection to the parent open."""

    def misbehave(self) -> None:
        if os.fork():
            os._exit(3)
        signal.pause()


@pytest.fixture(scope="module")
def backend() -> Iterator[GlooBackend]:
    opened = GlooBackend(hang_timeout_seconds=3)  # imports of a new process take 1 s
    yield opened
    opened.close()


def group_of(backend: GlooBackend, rank: int) -> int:
    """Return the process of a rank, which leads a group."""
    return backend._pool._workers[rank].process.pid


def members(group: int) -> list[psutil.Process]:
    """List the living processes of a group."""
    return [
        each
        for each in psutil.process_iter(["status"])
        if each.info["status"] != psutil.STATUS_ZOMBIE and os.getpgid(each.pid) == group
    ]


@pytest.mark.long(30)
def test_real_processes_that_are_lost_are_replaced(backend: GlooBackend) -> None:
    assert backend.run(PAIR, resolve(Naive)).fault is None
    group = group_of(backend, 1)
    os.kill(group, signal.SIGKILL)
    assert backend._pool._workers[1].exit_reason() == "signal 9"
    run = backend.run(PAIR, resolve(Naive))
    assert (run.fault, run.remarks) == (None, ())

    group = group_of(backend, 1)
    died = backend.run(PAIR, resolve(DiesBesideItsChild)).fault
    assert (died.kind, died.ranks) == ("process_died", (1,))
    assert died.details == ("rank 1: ended by exit code 3",)
    assert members(group) == []

    stopped = backend.run(PAIR, resolve(StopsItself)).fault
    assert (stopped.kind, stopped.ranks) == ("never_returns", (1,))
    assert stopped.details[0] == f"rank 1: {words_of_silence(is_stopped=True)}"

    assert backend.run(PAIR, resolve(Naive)).fault is None
    group = group_of(backend, 1)
    hung = backend.run(PAIR, resolve(KeepsTheGil)).fault
    assert (hung.kind, hung.ranks) == ("never_returns", (1,))
    assert hung.details[0].endswith("it is in C code that keeps Python from running")
    lines = [each for each in hung.details if isinstance(each, CodeLine)]
    own = [each for each in lines if each.line.path == shown_path(__file__)]
    assert [(each.line.function, each.code) for each in own] == [
        ("wait", "self.misbehave()"),
        ("misbehave", "ctypes.PyDLL(None).sleep(1000)"),
    ]
    assert members(group) == []
