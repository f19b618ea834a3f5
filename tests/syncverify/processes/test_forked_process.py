"""A template forks processes: with the state of the process that asks, and cheaply."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import syncverify
from syncverify import import_path
from syncverify.import_path import find_modules_in
from syncverify.processes import forked_process
from syncverify.processes.process_state import LocalProcess
from syncverify.processes.supervised import Supervised, attend

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not hasattr(os, "pidfd_open"), reason="elsewhere no template forks"
    ),
]

# Sends what it sees; then does what it gets.
WITNESS = """
import os, sys

def main(connection):
    has_torch = "torch" in sys.modules
    seen = (os.getcwd(), os.environ.get("SEEN"), hash("a name"), has_torch)
    connection.send((os.getppid(), os.getpgrp(), os.read(0, 1), sys.path[0], seen))
    exec(connection.receive())
"""
Start = Callable[..., Supervised]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    (tmp_path / "witness_of_start.py").write_text(WITNESS)
    monkeypatch.syspath_prepend(str(tmp_path))
    started: list[Supervised] = []

    def start(template: int = 0) -> Supervised:
        started.append(forked_process.start("witness_of_start", template))
        return started[-1]

    yield start
    for process in started:
        process.end()


def message_of(worker: Supervised) -> Any:
    words = list[Any]()
    while not words:
        words = [word for _, word in attend([worker], 60)]
    while worker.process.leader is None:  # until the template has told it
        os.sched_yield()
    return words[0]


def test_processes_have_the_state_of_the_one_that_asks(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        monkeypatch.setenv("SEEN", place)
        worker = start()
        _, group, stdin, first_path, seen = message_of(worker)
        assert seen[:2] == (str(tmp_path / place), place)
        assert first_path == str(tmp_path)
        assert (group, stdin) == (worker.process.pid, b"")


@pytest.mark.parametrize("begins", ["forked", "spawned"])
def test_processes_import_this_package_beside_one_of_the_user(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    """A checkout has a folder of this name; modules of the user come before installed ones."""
    if begins == "spawned":
        monkeypatch.delattr(os, "pidfd_open")
    for name in ("syncverify", "psutil"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "__init__.py").write_text("1 / 0")
    monkeypatch.setattr(forked_process, "_templates", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(import_path, "_user_folders", set())
    find_modules_in(tmp_path / "mine")
    worker = start()
    message_of(worker)
    worker.send("import syncverify; connection.send(syncverify.__file__)")
    assert message_of(worker) == syncverify.__file__
    for template in forked_process._templates.values():
        template.close()


def test_template_imports_torch_once_for_all_of_its_processes(start: Start) -> None:
    message_of(start())  # the template is there
    worker = start()
    template, *_, seen = message_of(worker)
    assert template == message_of(start())[0]
    assert seen[-1]
    imported = LocalProcess(template).processor_seconds()
    assert worker.processor_seconds() < imported / 4


def test_a_template_that_was_prepared_forks_the_next_process(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked_process, "_templates", {})
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    forked_process.prepare()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "x")  # as the import of torch does
    (prepared,) = forked_process._templates.values()
    with closing(prepared):
        assert message_of(start())[0] == prepared.process.pid
        assert [*forked_process._templates.values()] == [prepared]


def test_neighbours_order_their_sets_differently(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks of a cluster do, and some synchronizers fail there."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    hashes = [message_of(start(template))[-1][2] for template in (0, 1, 0)]
    assert hashes[0] == hashes[2] != hashes[1]
    monkeypatch.setattr(forked_process, "_templates", {})
    assert message_of(start(1))[-1][2] == hashes[1]  # as in a later run


@pytest.mark.parametrize(
    ("act", "reason"),
    [("os._exit(7)", "exit code 7"), ("os.kill(os.getpid(), 11)", "signal 11")],
)
def test_end_of_a_process_is_reported(start: Start, act: str, reason: str) -> None:
    worker = start()
    message_of(worker)
    worker.send(act)
    assert worker.exit_reason() == reason
    assert worker.has_ended()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_template_that_is_lost_is_replaced(start: Start, number: int) -> None:
    before = message_of(start())[0]
    os.kill(before, number)
    options = os.WEXITED | os.WSTOPPED | os.WNOWAIT
    os.waitid(os.P_PID, before, options)
    assert message_of(start())[0] != before


@pytest.mark.parametrize("end", ["before the request", "after it"])
def test_process_ends_with_the_code_of_a_template_that_never_forks(end: str) -> None:
    with closing(forked_process._Template()) as template:
        if end == "before the request":
            template.process.kill()
            template.process.wait()
        process = forked_process.ForkedProcess(template.process, template.ask(0, 0))
        template.process.kill()
        assert process.exit_code(60) == -signal.SIGKILL


def test_variables_that_torch_reads_once_are_those_of_the_process_that_asks(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks_torch = (
        "import torch.distributed as dist; connection.send(dist.get_debug_level().name)"
    )
    levels = []
    for level in ("OFF", "DETAIL"):
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", level)
        worker = start()
        message_of(worker)
        worker.send(asks_torch)
        levels.append(message_of(worker))
    assert levels == ["OFF", "DETAIL"]


# Opens a file in a worker, which gets the number of the template's socket.
OPENS_A_FILE = """
import os, socket, sys
from syncverify.processes import template

control = socket.socket(fileno=int(sys.argv[1]))
number = control.fileno()
template.serve(control)
while (opened := os.open(os.devnull, os.O_RDONLY)) < number:
    pass
del control
print(opened == number, os.path.exists(f"/proc/self/fd/{opened}"), flush=True)
os._exit(0)
"""


def test_a_worker_keeps_a_file_with_the_number_of_the_template_s_socket() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection, end = socket.socketpair()
    pipes = [*os.pipe(), *os.pipe()]
    with ours, theirs, connection, end:
        number = theirs.fileno()
        template = subprocess.Popen(
            [sys.executable, "-c", OPENS_A_FILE, str(number)],
            pass_fds=[number], stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        theirs.close()
        requested = [end.fileno(), pipes[0], 1, 2, pipes[3]]
        with open(f"/proc/{template.pid}/fd/1", "wb") as out, template.stdout:  # noqa: PTH123
            requested[2] = out.fileno()
            socket.send_fds(ours, [b"?"], requested)
            printed = template.stdout.readline()
        ours.close()
        assert template.wait() == 0
    for each in pipes:
        os.close(each)
    assert printed == "True True\n"
