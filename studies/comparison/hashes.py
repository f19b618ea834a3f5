"""Hashes of torch's DebugMode: the log of a run, compared with the log of a trusted run.

Each rank is a process on gloo, forked from a worker that has imported torch already. It plays
the trusted subject first and the other one after it, each under a `DebugMode` that hashes the
results of all operators.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch._ops import OpOverload
from torch.utils._debug_mode import DebugMode

from studies.comparison.one_worker import (
    HANG_TIMEOUT_SECONDS,
    Answer,
    hang,
    packed,
    serve,
)
from syncverify.backends.faults import raised_fault
from syncverify.backends.packed_outcomes import pack_result
from syncverify.processes.owner_link import tell_owner
from syncverify.processes.supervised import HungUp, Supervised, attend, fork
from syncverify.processes.wire import Wire
from syncverify.program.rank_program import play
from syncverify.program.subject_error import SubjectRaisedError
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import Fault, RankRun


@dataclass(frozen=True, slots=True)
class _Task:
    """The part of one rank.

    Attributes:
        scenario: Mesh, parameters and steps of the program.
        subject: The synchronizer.
        trusted: A synchronizer with a right log.
        rank: Global rank.
        store: Path of the file by which ranks meet.
    """

    scenario: Scenario
    subject: Subject
    trusted: Subject
    rank: int
    store: str


class _Ended(NamedTuple):
    """Message of a rank at its end: its pickled result, its fault, its remark, our own error."""

    result: bytes
    fault: Fault | None = None
    remark: str = ""
    harness_error: str = ""


def play_with_hashes(scenario: Scenario, subject: Subject, trusted: Subject) -> Answer:
    """Play a trusted subject and another one, and compare their logs on each rank.

    Args:
        scenario: Mesh, parameters and steps of the program.
        subject: The synchronizer.
        trusted: A synchronizer with a right log.

    Returns:
        The answer; its remarks are the first differences of the ranks.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "store"))
        tasks = [
            _Task(scenario, subject, trusted, rank, store)
            for rank in range(scenario.mesh.num_ranks)
        ]
        ended = _all_ends(tasks)
    fault = next((each.fault for each in ended if each.fault is not None), None)
    remarks = tuple(each.remark for each in ended if each.remark)
    error = next((each.harness_error for each in ended if each.harness_error), "")
    return Answer(tuple(each.result for each in ended), fault, error, remarks)


def _all_ends(tasks: list[_Task]) -> list[_Ended]:
    """Play all ranks in processes of their own, none of which lives longer than the call."""
    processes: list[Supervised] = []
    try:
        for task in tasks:
            fork(partial(_play, task), Supervised, note=processes.append)
        return [*_ends(processes)]
    finally:
        for process in processes:
            process.end()


def _ends(processes: list[Supervised]) -> Iterator[_Ended]:
    """Yield the end of each rank, in order; after a fault, ranks that wait end as they are."""
    nothing = packed([RankRun()])[0]
    all_ranks = tuple(range(len(processes)))
    ended: dict[int, _Ended] = {}
    # Before the owner of this process ends it, at the whole limit.
    deadline = monotonic() + HANG_TIMEOUT_SECONDS * 0.8
    while len(ended) < len(processes) and (left := deadline - monotonic()) > 0:
        waiting = [each for rank, each in enumerate(processes) if rank not in ended]
        for process, word in attend(waiting, left):
            rank = processes.index(process)
            if isinstance(word, HungUp):
                died = Fault("process_died", (rank,), "it died")
                ended.setdefault(rank, _Ended(nothing, died))
            elif isinstance(word, _Ended):
                ended[rank] = word
        if any(each.fault is not None or each.harness_error for each in ended.values()):
            break
    stuck = None
    if not any(each.fault is not None for each in ended.values()):
        stuck = hang(all_ranks, "processes")
    for rank in all_ranks:
        yield ended.get(rank, _Ended(nothing, stuck))


def _play(task: _Task) -> NoReturn:
    """Play one rank in a forked process, which ends without clean-up of the parent's."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        rank=task.rank,
        world_size=task.scenario.mesh.num_ranks,
        store=dist.FileStore(task.store, task.scenario.mesh.num_ranks),
    )
    result = RankRun()
    try:
        end = _end(task, result)
    except Exception as error:  # noqa: BLE001  # no error is a finding here
        end = _Ended(pack_result(result), harness_error=f"rank {task.rank}: {error!r}")
    tell_owner(lambda: end)
    os._exit(0)


def _end(task: _Task, result: RankRun) -> _Ended:
    try:
        # Fills caches: the operators that fill them are ours.
        _log(task, task.trusted, RankRun())
        right = _log(task, task.trusted, RankRun())
    except SubjectRaisedError as error:
        return _Ended(
            pack_result(result), None, f"the trusted run raises: {error.original}"
        )
    try:
        observed = _log(task, task.subject, result)
    except SubjectRaisedError as error:
        return _Ended(pack_result(result), raised_fault(error, task.rank))
    return _Ended(pack_result(result), None, _difference(right, observed))


def _log(task: _Task, subject: Subject, result: RankRun) -> list[Any]:
    torch.manual_seed(0)  # the program draws numbers in each step
    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        play(
            task.scenario,
            subject,
            rank=task.rank,
            device=torch.device("cpu"),
            result=result,
            recorder=Recorder(),
        )
    logs: list[Any] = mode.logs
    return logs


# Begins the remark on logs that cannot be compared, which is no finding.
DIFFERENT_OPERATORS = "operators differ from the trusted run"


def _difference(right: list[Any], observed: list[Any]) -> str:
    """Return the first difference of two logs, in words; "" for none."""
    try:
        found = DebugMode.check_hash_mismatches(right, observed)
    except ValueError as error:
        return f"{DIFFERENT_OPERATORS}: {error}"
    counted = [each for each in found if each["call"] not in _uncounted(observed)]
    if not counted:
        return ""
    first = counted[0]
    return f"{first['call']}: hash {first['hash2']}, trusted {first['hash1']}"


def _uncounted(log: list[Any]) -> set[str]:
    """Name the operators that compute nothing: views, and collectives that begin.

    The memory of an asynchronous collective is hashed before it is complete, with any result.

    Returns:
        Names as in the log.
    """
    operators = (each.op for each in log if hasattr(each, "op"))
    return {
        operator.name()
        for operator in operators
        if isinstance(operator, OpOverload)
        and (operator.is_view or operator.namespace == "c10d")
    }


def main(wire: Wire) -> None:
    """Serve the owner of this process, which `OneWorker` has started."""
    serve(wire, play_with_hashes)
