"""Python commands of tests, in forks of one process that has imported torch.

An import of torch, with DTensor and Dynamo, takes over two seconds, and a command makes it in
each process that plays. These modules hold no state of ours, so a command does the same with
them. Tests of the start of a command start Python itself.
"""

import atexit
import functools
import os
import pickle
import shlex
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from studies.pages.followed import environment

ROOT = Path(__file__).parents[1]
_MAX_BYTES = 1 << 20
# Forks itself for each command, one after the other, and tells the exit code.
_SERVER = f"""
import os, pickle, runpy, signal, socket, sys
import torch.distributed.tensor, torch._dynamo

signal.signal(signal.SIGINT, signal.SIG_IGN)
control = socket.socket(fileno=int(sys.argv[1]))
pid = 1
while pid:
    command, pipes, *_ = socket.recv_fds(control, {_MAX_BYTES}, 2)
    if not command:
        break
    pid = os.fork()
    if pid:
        for pipe in pipes:
            os.close(pipe)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        control.send(pickle.dumps(code))

def become(words, folder, variables):
    for number, pipe in enumerate(pipes, start=1):
        os.dup2(pipe, number)
        os.close(pipe)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)
    control.close()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    what, *sys.argv[1:] = words
    if what in ("-m", "-c"):
        option, what = what, sys.argv.pop(1)
    else:
        option = "FILE"
    sys.path[:1] = [folder, *filter(None, variables.get("PYTHONPATH", "").split(":"))]
    if option == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif option == "FILE":
        sys.argv[0] = what
        runpy.run_path(what, run_name="__main__")
    else:
        exec(what, {{"__name__": "__main__"}})

if not pid:
    become(*pickle.loads(command))
"""


def python(
    *words: str, folder: Path, in_one: bool = False, **variables: str | None
) -> subprocess.CompletedProcess[str]:
    """Run `python` in a folder, and return how it ended.

    As with pipes of `subprocess`, the end comes when no process holds the output any more. The words
    are `-m` and a module, `-c` and code, or a file; then those of the command. Complaints may be a
    part of the output (`in_one`). A variable of the environment that is None is absent.
    """
    control = _control()
    pipes = [os.pipe(), os.pipe()]
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    changed = {**os.environ, **own, **variables}
    environment = {key: each for key, each in changed.items() if each is not None}
    command = words, str(folder), environment
    written = [writing for _, writing in pipes]
    shown = [written[0]] * 2 if in_one else written
    socket.send_fds(control, [pickle.dumps(command)], shown)
    for writing in written:
        os.close(writing)
    with ThreadPoolExecutor(2) as threads:
        out, err = threads.map(_read, [reading for reading, _ in pipes])
    code = pickle.loads(control.recv(_MAX_BYTES))
    return subprocess.CompletedProcess(words, code, out, err)


def page_command(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a page shows it, `syncverify`, `pytest` or `python`, as `python` does."""
    name, *words = shlex.split(command)
    words = words if name == "python" else ["-m", name, *words]
    variables = {"PYTHONPATH": None, "CI": None, **environment()}
    return python(*words, folder=folder, in_one=True, **variables)


def page_output(command: str, folder: Path) -> str:
    """Return the output of a command of a page."""
    return page_command(command, folder).stdout


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as file:
        return file.read()


@functools.cache
def _control() -> socket.socket:
    """Start the process, and return the socket on which it takes commands."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
        )

    def end() -> None:
        ours.close()
        server.kill()
        server.wait()

    atexit.register(end)
    return ours
