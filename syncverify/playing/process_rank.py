"""One rank in this process: it joins a real process group and plays a scenario."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta

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
from syncverify.playing.messages import JobOutcome, stopped_by
from syncverify.playing.packed_outcomes import pack_result
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.program.rank_program import play
from syncverify.playing.program.subject_error import (
    SubjectRaisedError,
    raised_by_subject,
)
from syncverify.playing.rank_groups import KeptTransports, end_groups
from syncverify.playing.recording import CollectiveRecording
from syncverify.scenario.scenario import Scenario
from syncverify.sim.device.host_streams import HostStreams, host_streams
from syncverify.sim.process_wide.generators import unlikely_start
from syncverify.sim.process_wide.rank_variables import missing_rank_variables
from syncverify.sim.process_wide.settings import restored_settings
from syncverify.sim.turns.refusals import Refusals
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import RankRun


@dataclass(frozen=True, slots=True)
class Membership:
    """The place of this rank in the process group of one job.

    Attributes:
        number: Number of the job; it keeps the keys of different jobs apart in the store.
        timeout: Time after which a collective that waits for an absent rank fails.
    """

    number: int
    transport: str
    store: dist.Store
    rank: int
    timeout: timedelta


@dataclass(frozen=True, slots=True)
class RankPart:
    """The part of one rank in a job."""

    membership: Membership
    scenario: Scenario
    subject: Subject
    device: torch.device
    recorder: Recorder


def play_rank(
    part: RankPart,
    tell: Callable[[JobOutcome], None],
    kept: KeptTransports | None = None,
) -> None:
    """Play a scenario as one rank, and tell the outcome, errors included.

    No exception of the scenario is raised: the parent, in another process, could not catch
    it. The outcome is sent before the process groups end, because their end may wait for
    other ranks. Process groups use the transports that are kept, and leave theirs there.
    """
    with nullcontext() if kept is None else kept.in_use():
        outcome = _outcome(part)
        tell(outcome)
        is_clean = not outcome.is_failure
        end_groups(is_clean=is_clean)
    if kept is not None and not is_clean:
        kept.drop()


def _outcome(part: RankPart) -> JobOutcome:
    refusals = Refusals(part.membership.transport, wake=lambda: None)
    with refusals.of_the_process():
        outcome = _outcome_unless_refused(part)
    if refusals.first is not None:  # a refusal counts more than the outcome
        return stopped_by(refusals.first)
    return outcome


def _outcome_unless_refused(part: RankPart) -> JobOutcome:
    result = RankRun()
    try:
        _play(part, result)
    except (SubjectRaisedError, RunEndedError) as error:
        raised = raised_by_subject(error)
        try:
            fault = raised_fault(raised, part.membership.rank)
        except InternalError as own:
            return stopped_by(own)
        aftershock = _is_about_a_lost_peer(raised.original)
        return JobOutcome(pack_result(result), fault, is_aftershock=aftershock)
    except EnvironmentNotSupportedError as error:
        return JobOutcome(refusal=str(error))
    except UsageError as error:
        return JobOutcome(usage_error=str(error))
    except BaseException as error:  # noqa: BLE001  # reported as the harness's own fault
        aftershock = _is_about_a_lost_peer(error)
        return JobOutcome(
            pack_result(result),
            is_aftershock=aftershock,
            harness_error=traceback.format_exc(),
        )
    return JobOutcome(pack_result(result))


def _play(part: RankPart, result: RankRun) -> None:
    membership = part.membership
    dist.init_process_group(
        membership.transport,
        store=dist.PrefixStore(f"job{membership.number}", membership.store),
        rank=membership.rank,
        world_size=part.scenario.mesh.num_ranks,
        timeout=membership.timeout,
    )
    settings, variables = restored_settings(), missing_rank_variables()
    is_cpu = part.device.type == "cpu"
    streams = _streams_of_the_process() if is_cpu else nullcontext()
    collectives = CollectiveRecording(part.recorder)
    arithmetic = exact_arithmetic(part.device)
    with unlikely_start(), arithmetic, settings, variables, streams, collectives:
        play(
            part.scenario,
            part.subject,
            rank=membership.rank,
            device=part.device,
            result=result,
            recorder=part.recorder,
        )


def _streams_of_the_process() -> AbstractContextManager[None]:
    """Return a context in which a process without a GPU has streams, on all its threads."""
    streams = HostStreams()
    return host_streams(lambda: streams)


def _is_about_a_lost_peer(error: BaseException) -> bool:
    # Gloo raises plain RuntimeErrors; their text names a source file of gloo.
    return isinstance(error, dist.DistError) or "gloo" in message_of(error)
