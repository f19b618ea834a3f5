"""A world of one rank in this process, on the transport of a device."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from studies.gpu.part import transport_of
from syncverify.judge.properties import judge_run
from syncverify.playing.messages import JobOutcome, unpack_result
from syncverify.playing.process_rank import RankPart, Seat, play_rank
from syncverify.playing.rank_groups import KeptTransports
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import Run

_TIMEOUT = timedelta(minutes=5)


def wrong_in(
    scenario: Scenario, subject: Subject, device: torch.device, kept: KeptTransports
) -> list[str]:
    """Play a scenario of one rank, and judge it.

    Args:
        scenario: Mesh, parameters and steps of the program.
        subject: The synchronizer under test.
        device: Device of the rank.
        kept: Transports of the scenarios before, which spare the time to make new ones.

    Returns:
        The text of each violation, or of the error of the harness.
    """
    seat = Seat(transport_of(device), dist.HashStore(), 0, _TIMEOUT, device)
    outcomes: list[JobOutcome] = []
    part = RankPart(1, seat, scenario, subject, Recorder())
    play_rank(part, outcomes.append, kept)
    outcome = outcomes[0]
    if error := outcome.harness_error or outcome.refusal or outcome.usage_error:
        return [error.strip().rpartition("\n")[2]]
    ranks = (unpack_result(outcome.result),)
    run = Run(transport_of(device), ranks, outcome.fault, device=device)
    violations = judge_run(scenario, run, subject.capabilities).violations
    return ["{} ({}): {}".format(*each.identity, each.summary) for each in violations]


@contextmanager
def world_of_one(device: torch.device) -> Iterator[None]:
    """Make a default process group of this process alone."""
    store = dist.HashStore()
    dist.init_process_group(
        transport_of(device), store=store, rank=0, world_size=1, timeout=_TIMEOUT
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
