"""A rank that is a thread, over torch's own threaded process group."""

import torch
import torch.distributed as dist

from syncverify.program.rank_program import play
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import RankRun


def play_threaded_rank(
    scenario: Scenario, subject: Subject, rank: int, store: dist.Store, result: RankRun
) -> None:
    """Play the rank program on the calling thread; all ranks have one store.

    Call it inside `thread_local_world()`, which registers the `threaded` backend. The
    trace of the result holds calls alone: torch's threaded group shows its collectives to
    no recorder.
    """
    world_size = scenario.mesh.num_ranks
    dist.init_process_group("threaded", rank=rank, world_size=world_size, store=store)
    try:
        play(
            scenario,
            subject,
            rank=rank,
            device=torch.device("cpu"),
            result=result,
            recorder=Recorder(),
        )
    finally:
        dist.destroy_process_group()
