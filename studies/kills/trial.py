"""One command that is disturbed at random moments, and the rules by which its end is judged."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from studies.kills.victims import MARK, living, send

RIGHT = "synchronizer"
WRONG = "syncverify.bugbank.numerics.factors:DividesByMicroBatches"
SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT)
_LONGEST_PAUSE_SECONDS = 2.5
_LONGEST_RUN_SECONDS = 150.0
_STOPPED_SECONDS = 0.5
_LOOK_SECONDS = 0.05
_NUM_LOOKS = 40
# Exit codes of a command whose owner gets a signal: for a shell, -2 is 130.
_OF_OWNER = {signal.SIGKILL: {-9}, signal.SIGTERM: {143, -15}, signal.SIGINT: {130, -2}}
_BLAME = re.compile(r"process_died|never_returns")


@dataclass(frozen=True, slots=True)
class Plan:
    """The command of one trial, and how often it is disturbed.

    Attributes:
        number: Number of the trial, and seed of its kills.
        backend: Name of the backend.
        is_right: Whether the subject of the command is right.
        num_kills: Number of signals to send.
        awaits_workers: Whether the first signal waits until workers run.
    """

    number: int
    backend: str
    is_right: bool
    num_kills: int
    awaits_workers: bool

    @property
    def command(self) -> list[str]:
        """Return the words of the command."""
        subject = RIGHT if self.is_right else WRONG
        return [
            *(sys.executable, "-m", "syncverify", "run", subject, "--no-beyond"),
            *("--backend", self.backend, "--ranks", "2", "--examples", "80"),
            *("--seed", str(self.number), "--database", "kept"),
        ]


@dataclass(slots=True)
class TrialEnd:
    """How a disturbed command ended.

    Attributes:
        kills: Kind of process and name of the signal, in order.
        code: Exit code; None where the command had to be ended.
        seconds: Seconds from the last kill to the end.
        output: All that was printed.
        left: Kinds of processes that were left, and names of temporary files.
    """

    kills: list[tuple[str, str]] = field(default_factory=list)
    code: int | None = None
    seconds: float = 0.0
    output: str = ""
    left: list[str] = field(default_factory=list)


def planned(number: int) -> Plan:
    """Return the plan of a number, the same in each run."""
    draw = random.Random(number)  # nothing secret
    backend = draw.choice(("sim", "gloo", "gloo", "gloo"))
    is_right, num_kills = draw.random() < 0.5, draw.choice((1, 2, 4, 8))
    awaits_workers = backend == "gloo" and draw.random() < 0.75
    return Plan(number, backend, is_right, num_kills, awaits_workers)


def play(plan: Plan) -> TrialEnd:
    """Start the command, kill processes of it at random moments, and wait for its end."""
    draw = random.Random(-plan.number)
    mark, ending = f"{os.getpid()}-{plan.number}", TrialEnd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        temporary = folder / "temporary"
        temporary.mkdir()
        marked = {**os.environ, MARK: mark, "TMPDIR": str(temporary)}
        with (folder / "output").open("w+") as output:
            process = subprocess.Popen(
                plan.command,
                cwd=folder,
                env=marked,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
            if plan.awaits_workers:
                _await_workers(process, mark)
            last = _kill(process, mark, plan.num_kills, draw, ending)
            _await_end(process, ending)
            ending.seconds = time.monotonic() - last
        ending.output = (folder / "output").read_text(errors="replace")
        ending.left = [*_left(mark), *_files(temporary)]
    return ending


def _await_workers(process: subprocess.Popen[bytes], mark: str) -> None:
    while process.poll() is None:
        if any(each.kind == "worker" for each in living(mark, process.pid)):
            return
        time.sleep(_LOOK_SECONDS)


def _kill(
    process: subprocess.Popen[bytes],
    mark: str,
    num_kills: int,
    draw: random.Random,
    ending: TrialEnd,
) -> float:
    """Send signals to random processes of the command; return the time of the last one."""
    last = time.monotonic()
    while len(ending.kills) < num_kills and process.poll() is None:
        time.sleep(draw.uniform(0, _LONGEST_PAUSE_SECONDS))
        victims = living(mark, process.pid)
        if not victims:
            break
        victim = draw.choice(victims)
        chosen = draw.choice(SIGNALS)
        if send(victim, chosen):
            last = time.monotonic()
            ending.kills.append((victim.kind, chosen.name))
        if victim.kind == "owner" and chosen is signal.SIGSTOP:
            time.sleep(_STOPPED_SECONDS)  # no process notices: the user goes on
            send(victim, signal.SIGCONT)
    return last


def _await_end(process: subprocess.Popen[bytes], ending: TrialEnd) -> None:
    try:
        ending.code = process.wait(_LONGEST_RUN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _left(mark: str) -> list[str]:
    """Name the processes that are left; end them. The kernel takes a moment to end others."""
    for _ in range(_NUM_LOOKS):
        if not living(mark, 0):
            return []
        time.sleep(_LOOK_SECONDS)
    left = living(mark, 0)
    for victim in left:
        send(victim, signal.SIGKILL)
    return [each.kind for each in left]


def _files(temporary: Path) -> list[str]:
    """Name the files that are left, without torch's cache of compiled code."""
    names = (each.name for each in temporary.iterdir())
    return [name for name in names if not name.startswith("torchinductor_")]


def faults_of(plan: Plan, ending: TrialEnd) -> list[str]:
    """Say all that is wrong about an end; nothing where it is as it should be."""
    faults = [f"left behind: {name}" for name in ending.left]
    if _is_start_of_python(ending.output):
        return faults  # no line of ours had run
    if ending.code is None:
        return [*faults, f"did not end within {_LONGEST_RUN_SECONDS:.0f} s"]
    if ending.code not in _allowed(plan, ending):
        faults.append(f"exit code {ending.code}")
    # A kill or stop of each process that plays a scenario looks like a fault of the scenario.
    most = max(ending.kills.count(("child", name)) for name in ("SIGKILL", "SIGSTOP"))
    if most < 2 and _BLAME.search(ending.output):
        faults.append("the subject is blamed for a kill")
    if ending.code == 0 and "NO VIOLATION" not in ending.output:
        faults.append("exit code 0 without a verdict")
    if ending.code == 1 and "VIOLATION" not in ending.output:
        faults.append("exit code 1 without a violation")
    if "Traceback" in ending.output:
        faults.append("a traceback")
    return faults


def _is_start_of_python(output: str) -> bool:
    """Tell whether an interrupt came before the first line of the command."""
    is_cut = "Fatal Python error: init_import_site" in output or "runpy" in output
    return is_cut and "syncverify/command" not in output


def _allowed(plan: Plan, ending: TrialEnd) -> set[int]:
    """Return the exit codes that are right: those of the subject, no verdict, and signals."""
    allowed = {0 if plan.is_right else 1}
    if any(kind != "owner" for kind, _ in ending.kills):
        allowed |= {3}
    for kind, name in ending.kills:
        if kind == "owner":
            allowed |= _OF_OWNER.get(signal.Signals[name], set())
        elif name == "SIGINT":
            allowed |= {130}
    return allowed


def line_of(number: int) -> str:
    """Play the trial of a number, and return its line of the file of results."""
    plan = planned(number)
    ending = play(plan)
    faults = faults_of(plan, ending)
    fields = {
        **asdict(plan),
        "kills": ending.kills,
        "code": ending.code,
        "seconds": round(ending.seconds, 1),
        "faults": faults,
    }
    if faults:
        fields["output"] = ending.output[-4000:]
    return json.dumps(fields)
