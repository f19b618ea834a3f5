"""The `fake` backend: torch's FakeProcessGroup, which moves no data, at any world size.

Ranks play one after the other, each on a thread of its own, because torch caches the
local shapes of DTensor operators per thread without asking for the rank. Values of
reduced gradients mean nothing here; what is judged is what a rank does by itself:
lifecycle, accumulation, which collectives it issues and when.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from syncverify.backends.faults import threads_fault
from syncverify.backends.recording import CollectiveRecording
from syncverify.rank_program import play
from syncverify.recorder import Recorder
from syncverify.run import RankRun, Run
from syncverify.scenario import Scenario
from syncverify.sim.scheduler import Scheduler
from syncverify.sim.threaded_world import init_fake_process_group, thread_local_world
from syncverify.subject import Subject


class FakeBackend:
    """Plays each rank alone, as if its peers were there."""

    name = "fake"

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario, rank after rank, until one raises.

        Args:
            scenario: What to play.
            subject: The synchronizer under test.

        Returns:
            What came out, without data.
        """
        num_ranks = scenario.mesh.num_ranks
        results = tuple(RankRun() for _ in range(num_ranks))
        recorders = [Recorder() for _ in range(num_ranks)]

        def program(rank: int) -> None:
            _play_rank(scenario, subject, rank, results[rank], recorders[rank])

        scheduler = Scheduler(
            num_ranks, progress=lambda: sum(len(r.events) for r in recorders)
        )
        with thread_local_world():
            threads, stall = scheduler.run(program)
        return Run(
            self.name, results, threads_fault(threads, stall), carries_data=False
        )

    def close(self) -> None:
        """Do nothing: no rank outlives its run."""


def _play_rank(
    scenario: Scenario, subject: Subject, rank: int, result: RankRun, recorder: Recorder
) -> None:
    init_fake_process_group(rank=rank, world_size=scenario.mesh.num_ranks)
    try:
        with CollectiveRecording(recorder):
            play(
                scenario,
                subject,
                rank=rank,
                device=torch.device("cpu"),
                result=result,
                recorder=recorder,
            )
    finally:
        dist.destroy_process_group()
