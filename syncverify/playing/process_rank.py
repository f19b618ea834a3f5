"""One rank in this process: it joins a real process group and plays a scenario."""

import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from syncverify.errors import (
    EnvironmentNotSupportedError,
    InternalError,
    RunEndedError,
    UsageError,
)
from syncverify.plain_text import message_of
from syncverify.playing.faults import raised_fault
from syncverify.playing.messages import JobOutcome, pack, stopped_by
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.program.rank_program import play_part
from syncverify.playing.program.subject_error import (
    SubjectRaisedError,
    raised_by_subject,
)
from syncverify.playing.rank_groups import KeptTransports, end_groups
from syncverify.playing.recording import CollectiveRecording
from syncverify.scenario.scenario import Scenario
from syncverify.sim.device.device_modules import host_streams
from syncverify.sim.device.virtual_streams import StreamQueues
from syncverify.sim.process_wide.generators import unlikely_start
from syncverify.sim.process_wide.rank_variables import missing_rank_variables
from syncverify.sim.process_wide.settings import restored_settings
from syncverify.sim.turns.refusals import Refusals
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import RankRun


@dataclass(frozen=True, slots=True)
class Seat:
    """What a rank that is a process has in all of its jobs."""

    # torch's name of the process group backend.
    transport: str
    # The store in which the ranks find each other; stubs of torch lack `clone`.
    store: Any
    rank: int
    # Time after which a collective that waits for an absent rank fails.
    timeout: timedelta
    device: torch.device


@dataclass(frozen=True, slots=True)
class RankPart:
    """The part of one rank in a job."""

    # Number of the job; it keeps the keys of different jobs apart in the store.
    number: int
    seat: Seat
    scenario: Scenario
    subject: Subject
    recorder: Recorder


def play_rank(
    part: RankPart,
    tell: Callable[[JobOutcome], None],
    kept: KeptTransports | None = None,
) -> None:
    """Play a scenario as one rank, and tell the outcome, errors included.

    The outcome is sent before the process groups end, because their end may wait for
    other ranks. Process groups use the transports that are kept, and leave theirs there.
    """
    result = RankRun()
    refusals = Refusals(part.seat.transport, wake=lambda: None)
    with nullcontext() if kept is None else kept.in_use():
        outcome = outcome_of(lambda: _play(part, result), part.seat.rank, refusals)
        outcome = outcome or JobOutcome(harness_error="the run was ended by no rank")
        tell(replace(outcome, result=pack(result)))
        is_clean = not outcome.is_failure
        end_groups(is_clean=is_clean)
    if kept is not None and not is_clean:
        kept.drop()


def outcome_of(
    program: Callable[[], object],
    rank: int,
    refusals: Refusals,
    has_ended: Callable[[], bool] = lambda: False,
) -> JobOutcome | None:
    """Run the program of a rank that is this process, and return the outcome, errors included.

    No exception of the program is raised: the parent, in another process, could not catch it.
    The first refusal counts more than the outcome. There is none if the run was ended from
    outside, which `has_ended` tells, as the hub of simulated ranks does.
    """
    with refusals.of_the_process():
        outcome = _outcome_unless_refused(program, rank, has_ended)
    if refusals.first is not None:
        return stopped_by(refusals.first)
    return outcome


def _outcome_unless_refused(
    program: Callable[[], object], rank: int, has_ended: Callable[[], bool]
) -> JobOutcome | None:
    try:
        program()
    except (SubjectRaisedError, RunEndedError) as error:
        raised = raised_by_subject(error)
        if raised is None or (raised is not error and has_ended()):
            return None
        try:
            fault = raised_fault(raised, rank)
        except InternalError as own:
            return stopped_by(own)
        aftershock = _is_about_a_lost_peer(raised.original)
        return JobOutcome(fault=fault, is_aftershock=aftershock)
    except EnvironmentNotSupportedError as error:
        return JobOutcome(refusal=str(error))
    except UsageError as error:
        return JobOutcome(usage_error=str(error))
    except BaseException as error:  # noqa: BLE001  # reported as the harness's own fault
        return JobOutcome(
            is_aftershock=_is_about_a_lost_peer(error),
            harness_error=traceback.format_exc(),
        )
    return JobOutcome()


def _play(part: RankPart, result: RankRun) -> None:
    seat, scenario = part.seat, part.scenario
    dist.init_process_group(
        seat.transport,
        store=dist.PrefixStore(f"job{part.number}", seat.store),
        rank=seat.rank,
        world_size=scenario.mesh.num_ranks,
        timeout=seat.timeout,
    )
    settings, variables = restored_settings(), missing_rank_variables()
    # A process without a GPU has streams, on all its threads.
    own, is_cpu = StreamQueues(), seat.device.type == "cpu"
    streams = host_streams(lambda: own) if is_cpu else nullcontext()
    rank, device, recorder = seat.rank, seat.device, part.recorder
    collectives, arithmetic = CollectiveRecording(recorder), exact_arithmetic(device)
    with unlikely_start(), arithmetic, settings, variables, streams, collectives:
        play_part(scenario, part.subject, rank, result, recorder, device)


def _is_about_a_lost_peer(error: BaseException) -> bool:
    # Gloo raises plain RuntimeErrors; their text names a source file of gloo.
    return isinstance(error, dist.DistError) or "gloo" in message_of(error)
