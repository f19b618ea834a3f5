"""Play one rank in a process of its own, over a real process group."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from syncverify.backends.faults import raised_fault
from syncverify.backends.messages import Answer, pack_result
from syncverify.backends.recording import CollectiveRecording
from syncverify.errors import UsageError
from syncverify.rank_program import SubjectRaisedError, play
from syncverify.recorder import Recorder
from syncverify.run import RankRun
from syncverify.scenario import Scenario
from syncverify.subject import Subject


@dataclass(frozen=True, slots=True)
class Membership:
    """What it takes to join the process group of one job.

    Attributes:
        number: The job's number; process groups of different jobs never meet.
        transport: torch's name of the process group backend.
        store: Where the members find each other.
        rank: Global rank.
        world_size: Number of ranks.
        timeout: After which a collective that waits for an absent rank fails.
    """

    number: int
    transport: str
    store: dist.Store
    rank: int
    world_size: int
    timeout: timedelta

    def join(self) -> None:
        """Make the job's process group the default one."""
        dist.init_process_group(
            self.transport,
            store=dist.PrefixStore(f"job{self.number}", self.store),
            rank=self.rank,
            world_size=self.world_size,
            timeout=self.timeout,
        )


def play_rank(
    membership: Membership,
    scenario: Scenario,
    subject: Subject,
    *,
    device: torch.device,
    recorder: Recorder,
) -> Answer:
    """Play a scenario as one rank, whatever happens.

    Args:
        membership: The process group to play in.
        scenario: What to play.
        subject: The synchronizer under test.
        device: Where parameters live.
        recorder: Receives the trace.

    Returns:
        How it ended; nothing is raised, since nobody could catch it over there.
    """
    result, number = RankRun(), membership.number
    try:
        membership.join()
        try:
            with CollectiveRecording(recorder):
                play(
                    scenario,
                    subject,
                    rank=membership.rank,
                    device=device,
                    result=result,
                    recorder=recorder,
                )
        finally:
            dist.destroy_process_group()
    except SubjectRaisedError as error:
        fault = raised_fault(error, membership.rank)
        aftershock = _says_that_a_peer_left(error.original)
        return Answer(number, pack_result(result), fault, is_aftershock=aftershock)
    except UsageError as error:
        return Answer(number, b"", usage_error=str(error))
    except Exception:  # noqa: BLE001  # reported as the harness's own fault
        return Answer(number, b"", harness_error=traceback.format_exc())
    return Answer(number, pack_result(result))


def _says_that_a_peer_left(error: BaseException) -> bool:
    return isinstance(error, dist.DistError) or "gloo" in str(error)
