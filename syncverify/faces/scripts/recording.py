"""Record a script: start a process for each rank, hand out turns, keep the traces, judge them.

The file of a recording is a line of JSON, a pickled value, and the SHA-256 of both. The line tells
the format and the version: a file of another one is refused before its value is read.
"""

import hashlib
import json
import pickle
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

from syncverify.errors import InternalError, UsageError
from syncverify.faces.scripts.script import RankJob, Script, show_warnings
from syncverify.faces.simulation.host_waits import is_deadlock, unknown_stall
from syncverify.faces.simulation.program import Device
from syncverify.faces.simulation.simulation import FoundInProgram, Simulation
from syncverify.judge.properties.registry import judge_traced
from syncverify.judge.remarks import remarks_on
from syncverify.judge.traced import TracedRun, launches_of
from syncverify.playing.faults import hub_fault
from syncverify.processes.forked_process import start
from syncverify.scenario.replay_token import ProgramPlay
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, ScheduleCoverage
from syncverify.scenario.settings import SCRIPT_HANG_TIMEOUT_SECONDS
from syncverify.search.whole_file import plain_value
from syncverify.sim.apart.hub import Hub
from syncverify.trace.run import RankRun, Run

_PROCESS: Final = "syncverify.faces.scripts.script"
_NUM_HASH_SEEDS = 4
_FORMAT: Final = "syncverify recording 2"
_DIGEST_BYTES: Final = 32
_FILE: Final = "run.trace"


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded script."""

    script: Script
    device: Device
    run: Run
    refused: str = ""
    was_interrupted: bool = False

    @property
    def num_ranks(self) -> int:
        """World size."""
        return len(self.run.ranks)


def record(
    script: Script,
    num_ranks: int,
    *,
    device: Device = "cuda",
    hang_timeout_seconds: float = SCRIPT_HANG_TIMEOUT_SECONDS,
    names_torch: bool = False,
) -> Recording:
    """Run a script as torchrun does, with a simulated machine in the process of each rank.

    All ranks share a machine. Of an interrupted run the recording has the traces so far.

    Raises:
        UsageError: The script is not there.
        InternalError: The machine is at fault.
    """
    script.check()
    processes = [
        start(_PROCESS, _template_of(rank), imports=[_PROCESS])
        for rank in range(num_ranks)
    ]
    for rank, process in enumerate(processes):
        process.send(RankJob(script, rank, num_ranks, device, names_torch))
    hub = Hub(processes, hang_timeout_seconds, passes_stalls=device == "cuda")
    was_interrupted = False
    try:
        hub.run()
    except KeyboardInterrupt:
        was_interrupted = True
    finally:
        hub.end_processes()
    ended = {own.rank: own.ended for own in hub.ranks if own.ended is not None}
    show_warnings({rank: last.warnings for rank, last in ended.items()})
    for rank, last in ended.items():
        if last.came_to is not None and last.came_to.harness_error is not None:
            raise InternalError(f"rank {rank}: {last.came_to.harness_error}")
    outcomes = hub.outcomes()
    refused = (outcome.refusal or outcome.usage_error for outcome in outcomes)
    raised = (outcome.fault for outcome in outcomes)
    fault = None if was_interrupted else hub_fault(hub, raised)
    return Recording(
        script=script,
        device=device,
        run=Run("sim", tuple(RankRun(trace=own.trace) for own in hub.ranks), fault),
        refused=next(filter(None, refused), "") or _unknown_stall(hub),
        was_interrupted=was_interrupted,
    )


def _template_of(rank: int) -> int:
    """Return the template of a rank, which gives it a hash seed of strings.

    Under torchrun each rank has a random seed. Here it is one of four, so that four imports of
    torch serve all ranks. It is the sum of the rank's digits to the base 4, so that ranks apart by a
    power of two, as those of a mesh axis, have different seeds.
    """
    total = 0
    while rank:
        rank, digit = divmod(rank, _NUM_HASH_SEEDS)
        total += digit
    return total % _NUM_HASH_SEEDS


def _unknown_stall(hub: Hub) -> str:
    """Say why the stall of hosts is not judged; "" if there is none, or it is."""
    if hub.stall is None or not hub.has_passed:
        return ""
    is_whole = len(hub.outcomes()) == len(hub.ranks)
    # With the part after hosts have gone on without values.
    traces = (own.ended.trace if own.ended else own.trace for own in hub.ranks)
    ranks = tuple(RankRun(trace=each) for each in traces)
    shows = is_deadlock(Run("sim", ranks), hub.passed_stall, is_whole=is_whole)
    return "" if shows else unknown_stall(hub.stall)


# Another order would be another run of the script.
_AS_RECORDED: Final = ScheduleCoverage("the recorded order of the ranks alone")


def judge(recording: Recording) -> Simulation:
    """Judge a recording: races, early frees, mismatches, deadlocks, errors."""
    run, script = recording.run, recording.script
    unjudged = Simulation(script.target, recording.num_ranks, recording.device, 0)
    if recording.refused:
        return replace(unjudged, refused=recording.refused)
    traced = TracedRun(run, is_for_nccl=recording.device == "cuda")
    found = tuple(
        FoundInProgram(each, DEFAULT_SCHEDULE, run) for each in judge_traced(traced)
    )
    if not found and not any([*launches_of(each.trace)] for each in run.ranks):
        return replace(unjudged, refused="no rank has issued a collective")
    guilty_lines = {line for each in found for line in each.violation.evidence.lines}
    remarks = tuple(remarks_on(run, guilty_lines))
    options = ["--nproc", str(recording.num_ranks), "--device", recording.device]
    options += ["-m"] if script.is_module else []
    return replace(
        unjudged,
        violations=found,
        run=run,
        num_runs=1,
        coverage=_AS_RECORDED,
        # After an interruption a wait may come later.
        remarks=() if recording.was_interrupted else remarks,
        recorded=ProgramPlay("", "", "record", tuple(options), script.arguments),
    )


def write_recording(recording: Recording, folder: Path) -> None:
    """Write a recording, in the place of an earlier one, to a folder, which is made or refused."""
    header = {"format": _FORMAT, "syncverify": version("syncverify")}
    content = json.dumps(header).encode() + b"\n" + pickle.dumps(recording)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILE).write_bytes(content + hashlib.sha256(content).digest())
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from error


def read_recording(folder: Path) -> Recording:
    """Read a recording; raise UsageError if it is missing, was cut, or is of another version."""
    path = folder / _FILE
    if not path.is_file():
        raise UsageError(f"expected the folder of a recording: {folder} has no {_FILE}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    line, _, value = content.partition(b"\n")
    _check_header(path, line)
    if hashlib.sha256(content).digest() != digest:
        raise UsageError(f"{path} was cut or changed: its checksum is wrong")
    recording: Recording = plain_value(value)
    return recording


def _check_header(path: Path, line: bytes) -> None:
    """Do nothing if this version can read a file that begins with a line."""
    try:
        header = json.loads(line)
        written, by = header["format"], header["syncverify"]
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{path} is no file of a recording") from None
    if written != _FORMAT:
        raise UsageError(f"expected {_FORMAT!r} in {path}, not {written!r}")
    if by != version("syncverify"):
        raise UsageError(
            f"{path} was recorded by syncverify {by}, and this is "
            f"{version('syncverify')}: record the script again"
        )
