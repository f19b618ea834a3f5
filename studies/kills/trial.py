"""One command that is disturbed at random moments, and the rules by which its end is judged."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

RIGHT = "synchronizer"
WRONG = "syncverify.subjects.bugbank.numerics.factors:DividesByMicroBatches"
SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT)
# The processes of a command are found by this variable of their environment.
_MARK = "SYNCVERIFY_KILLS"
_TEMPLATE = "syncverify.processes.template"
_LONGEST_PAUSE_SECONDS = 2.5
_LONGEST_RUN_SECONDS = 150.0
_STOPPED_SECONDS = 0.5
_LOOK_SECONDS = 0.05
_NUM_LOOKS = 40
# Exit codes of a command whose owner gets a signal: for a shell, -2 is 130.
_OF_OWNER = {"SIGKILL": {-9}, "SIGTERM": {143, -15}, "SIGINT": {130, -2}}
_BLAME = re.compile(r"process_died|never_returns")


@dataclass(slots=True)
class Trial:
    """One command, and how it ended.

    Attributes:
        number: Seed of the command and of its signals.
        backend: Name of the backend.
        is_right: Whether the subject of the command is right.
        num_kills: Number of signals to send.
        awaits_workers: Whether the first signal waits until workers run.
        kills: Kind of process and name of the signal, in order.
        code: Exit code; None where the command had to be ended.
        output: All that was printed.
        left: Kinds of processes that were left, and names of temporary files.
    """

    number: int
    backend: str
    is_right: bool
    num_kills: int
    awaits_workers: bool
    kills: list[tuple[str, str]] = field(default_factory=list)
    code: int | None = None
    output: str = ""
    left: list[str] = field(default_factory=list)

    @classmethod
    def planned(cls, number: int) -> Self:
        """Return the trial of a number, the same in each run."""
        draw = random.Random(number)  # nothing secret
        backend = draw.choice(("sim", "gloo", "gloo", "gloo"))
        is_right, num_kills = draw.random() < 0.5, draw.choice((1, 2, 4, 8))
        return cls(
            number,
            backend,
            is_right,
            num_kills,
            backend == "gloo" and draw.random() < 0.75,
        )

    def play(self) -> None:
        """Start the command, send signals to its processes, and wait for its end."""
        mark = f"{os.getpid()}-{self.number}"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (temporary := folder / "temporary").mkdir()
            with (folder / "output").open("w+") as output:
                process = subprocess.Popen(
                    self._command(),
                    cwd=folder,
                    env={**os.environ, _MARK: mark, "TMPDIR": str(temporary)},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                )
                self._disturb(process, mark)
                try:
                    self.code = process.wait(_LONGEST_RUN_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self.output = (folder / "output").read_text(errors="replace")
            files = [each.name for each in temporary.iterdir()]
        # Without torch's cache of compiled code.
        named = [each for each in files if not each.startswith("torchinductor_")]
        self.left = [*_left(mark), *named]

    def _command(self) -> list[str]:
        subject = RIGHT if self.is_right else WRONG
        return [
            *(sys.executable, "-m", "syncverify", "run", subject, "--no-beyond"),
            *("--backend", self.backend, "--ranks", "2", "--examples", "80"),
            *("--seed", str(self.number), "--database", "kept"),
        ]

    def _disturb(self, process: subprocess.Popen[bytes], mark: str) -> None:
        draw = random.Random(-self.number)
        while self.awaits_workers and process.poll() is None:
            if "worker" in (kind for _, kind in _living(mark, process.pid)):
                break
            time.sleep(_LOOK_SECONDS)
        while len(self.kills) < self.num_kills and process.poll() is None:
            time.sleep(draw.uniform(0, _LONGEST_PAUSE_SECONDS))
            if not (victims := _living(mark, process.pid)):
                break
            (pid, kind), chosen = draw.choice(victims), draw.choice(SIGNALS)
            if _send(pid, chosen):
                self.kills.append((kind, chosen.name))
            if kind == "owner" and chosen is signal.SIGSTOP:
                time.sleep(_STOPPED_SECONDS)  # no process notices: the user goes on
                _send(pid, signal.SIGCONT)

    def faults(self) -> list[str]:
        """Say all that is wrong about the end; nothing where it is as it should be."""
        found = [f"left behind: {name}" for name in self.left]
        if _is_start_of_python(self.output):
            return found  # no line of ours had run
        if self.code is None:
            return [*found, f"did not end within {_LONGEST_RUN_SECONDS:.0f} s"]
        if self.code not in self._allowed():
            found.append(f"exit code {self.code}")
        # A kill or stop of each process that plays a scenario looks like a fault of the scenario.
        most = max(self.kills.count(("child", name)) for name in ("SIGKILL", "SIGSTOP"))
        if most < 2 and _BLAME.search(self.output):
            found.append("the subject is blamed for a kill")
        if self.code == 0 and "NO VIOLATION" not in self.output:
            found.append("exit code 0 without a verdict")
        if self.code == 1 and "VIOLATION" not in self.output:
            found.append("exit code 1 without a violation")
        if "Traceback" in self.output:
            found.append("a traceback")
        return found

    def _allowed(self) -> set[int]:
        """Return the exit codes that are right: those of the subject, no verdict, and signals."""
        allowed = {0 if self.is_right else 1}
        if any(kind != "owner" for kind, _ in self.kills):
            allowed |= {3}
        for kind, name in self.kills:
            if kind == "owner":
                allowed |= _OF_OWNER.get(name, set())
            elif name == "SIGINT":
                allowed |= {130}
        return allowed


def _living(mark: str, owner: int) -> list[tuple[int, str]]:
    """List id and kind of the processes with a mark in their environment, zombies left out."""
    return [
        (each.pid, _kind(each, owner))
        for each in psutil.process_iter(["environ"])
        if (each.info["environ"] or {}).get(_MARK) == mark
    ]


def _kind(process: psutil.Process, owner: int) -> str:
    if process.pid == owner:
        return "owner"
    with contextlib.suppress(psutil.Error):  # it has just ended
        if _TEMPLATE in process.cmdline():
            parent = process.parent()
            is_forked = parent is not None and _TEMPLATE in parent.cmdline()
            return "worker" if is_forked else "template"
    return "child"


def _send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return False if the process has ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _left(mark: str) -> list[str]:
    """Name the processes that are left; end them. The kernel takes a moment to end others."""
    for _ in range(_NUM_LOOKS):
        if not _living(mark, 0):
            return []
        time.sleep(_LOOK_SECONDS)
    left = _living(mark, 0)
    for pid, _ in left:
        _send(pid, signal.SIGKILL)
    return [kind for _, kind in left]


def _is_start_of_python(output: str) -> bool:
    """Tell whether an interrupt came before the first line of the command."""
    is_cut = "Fatal Python error: init_import_site" in output or "runpy" in output
    return is_cut and "syncverify/command" not in output


def played(number: int) -> Trial:
    """Play the trial of a number."""
    trial = Trial.planned(number)
    trial.play()
    return trial
