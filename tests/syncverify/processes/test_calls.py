"""Calls in several processes end with the command that makes them."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from syncverify.errors import InternalError, UsageError
from syncverify.processes.calls import run_in_processes
from syncverify.processes.owner_link import Lost, Starts, tell_owner
from syncverify.processes.supervised import Supervised
from syncverify.processes.system import interrupts_blocked

COMMAND = """
import os, re
import click
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import run_in_processes

def wait_for_ever(number):
    if number:
        os.write(1, b"waits\\n")
        re.match('(a+)+$', 'a' * 99 + 'b')  # for years; no other thread runs

@click.command()
def command():
    for _ in run_in_processes(wait_for_ever, [0, 1, 2, 3], jobs=2):
        pass

run_command(command, "some.command")
"""


def double(number: int) -> int:
    return 2 * number


def plays_and_blocks(number: int) -> int:
    tell_owner(lambda: Starts(f"sv2-{number}"))
    if number:
        ctypes.PyDLL(None).pause()
    return number


def plays_and_stops(number: int) -> int:
    tell_owner(lambda: Starts(f"sv2-{number}"))
    if number:
        os.kill(os.getpid(), signal.SIGSTOP)
        ctypes.PyDLL(None).pause()  # until another thread takes the signal
    return number


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "how"),
    [
        (plays_and_blocks, "it is in C code that keeps Python from running"),
        (plays_and_stops, "a signal has stopped it"),
    ],
)
def test_a_process_that_falls_silent_ends_the_calls(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[int], int], how: str
) -> None:
    monkeypatch.setattr(Supervised.is_stuck, "__defaults__", (2.0,))
    found = list[tuple[int, int]]()
    with pytest.raises(InternalError) as caught:
        found += run_in_processes(function, [0, 1], jobs=2)
    assert str(caught.value) == (f"process 1 does not answer: {how}; it played sv2-1")


def plays_and_exits(number: int) -> int:
    tell_owner(lambda: Starts(f"sv2-{number}"))
    if number:
        os._exit(3)
    return number


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "cause"),
    [(plays_and_blocks, "never_returns"), (plays_and_exits, "process_died")],
)
def test_a_lost_process_has_a_result_where_the_caller_gives_one(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[int], int], cause: str
) -> None:
    """A new process makes the calls that are left."""
    monkeypatch.setattr(Supervised.is_stuck, "__defaults__", (2.0,))

    def lost(number: int, token: str, end: Lost) -> str:
        return f"{number}, {token}, {end.cause}"

    found = list(run_in_processes(function, [1, 0], jobs=1, lost=lost))
    assert found == [(1, f"1, sv2-1, {cause}"), (0, 0)]


def refuses(number: int) -> int:
    raise UsageError(f"expected 0, got {number}")


def fails(number: int) -> int:
    return 1 // number


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [(refuses, UsageError, "expected 0, got 0"), (fails, InternalError, "division")],
)
def test_an_error_of_a_call_is_raised_here(
    function: Callable[[int], int], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        list(run_in_processes(function, [0], jobs=1))


@contextmanager
def at_work() -> Iterator[subprocess.Popen[str]]:
    """Start the command, and wait until two processes wait for ever."""
    running = subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    try:
        assert [running.stdout.readline() for _ in range(2)] == ["waits\n"] * 2
        yield running
    except BaseException:
        os.killpg(running.pid, signal.SIGKILL)  # or it would outlive this test as well
        running.communicate()
        raise


@pytest.mark.long
@pytest.mark.parametrize("send", [os.killpg, os.kill])
def test_interrupted_command_leaves_no_process(send) -> None:
    """Processes that live hold stdout open, with or without a message to them."""
    with at_work() as running:
        send(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert (out, err.strip()) == ("", "some.command: interrupted")


@pytest.mark.long
def test_killed_command_leaves_no_process() -> None:
    with at_work() as running:
        running.kill()
        running.communicate(timeout=60)
    assert running.returncode == -signal.SIGKILL


def test_an_interrupt_waits_for_the_end_of_a_start() -> None:
    reached: list[str] = []

    def start() -> None:
        with interrupts_blocked():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end of the block")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
