"""The `sim` backend: ranks are threads of this process, in turns, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syncverify.backends.faults import threads_fault
from syncverify.graphs import cpp
from syncverify.rank_program import play
from syncverify.run import RankRun, Run
from syncverify.scenario import Scenario
from syncverify.schedule import Schedule
from syncverify.sim.decisions import Decisions, Following
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.rank_recorder import RankRecorder
from syncverify.sim.scheduler import HANG_TIMEOUT_SECONDS
from syncverify.subject import Subject


class SimBackend:
    """Plays scenarios on simulated ranks.

    Args:
        hang_timeout_seconds: How long a rank may keep its turn without progress before
            the run is ended; see Note [A rank that does not come back].
    """

    name = "sim"

    def __init__(self, *, hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS) -> None:
        self._hang_timeout_seconds = hang_timeout_seconds
        # Subjects that were seen to use no second stream. With one stream there is
        # nothing to record; a run that proves to have more is played again.
        self._has_one_stream: set[Subject] = set()

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario on all of its ranks, with the default schedule.

        Args:
            scenario: What to play.
            subject: The synchronizer under test.

        Returns:
            What came out.
        """
        return self.run_scheduled(scenario, subject, Decisions())

    def run_scheduled(
        self, scenario: Scenario, subject: Subject, decisions: Decisions
    ) -> Run:
        """Play a scenario on all of its ranks, and decide where timing decides.

        Args:
            scenario: What to play.
            subject: The synchronizer under test.
            decisions: Whose policy decides; afterwards it knows what was decided.

        Returns:
            What came out.
        """
        has_one_stream = scenario.launch == "current_stream"
        records = not has_one_stream or subject not in self._has_one_stream
        run, machine = self._play(
            scenario, subject, decisions, records_accesses=records
        )
        if any(recorder.lacks_accesses for recorder in machine.recorders):
            self._has_one_stream.discard(subject)
            again = Decisions(Following(decisions.schedule))
            run, machine = self._play(scenario, subject, again, records_accesses=True)
        if has_one_stream and all(
            recorder.streams.is_alone for recorder in machine.recorders
        ):
            self._has_one_stream.add(subject)
        return run

    def run_with(
        self,
        scenario: Scenario,
        subject: Subject,
        schedule: Schedule,
        recorders: Sequence[RankRecorder],
    ) -> Run:
        """Play a scenario with recorders that make more of it than a trace.

        Args:
            scenario: What to play.
            subject: The synchronizer under test.
            schedule: What timing decides.
            recorders: One a rank.

        Returns:
            What came out.
        """
        decisions = Decisions(Following(schedule))
        run, _ = self._play(scenario, subject, decisions, recorders=recorders)
        return run

    def _play(
        self,
        scenario: Scenario,
        subject: Subject,
        decisions: Decisions,
        *,
        records_accesses: bool = True,
        recorders: Sequence[RankRecorder] | None = None,
    ) -> tuple[Run, SimulatedMachine]:
        cpp.prepare(spec.use for spec in scenario.parameters)
        num_ranks = scenario.mesh.num_ranks
        machine = SimulatedMachine(
            num_ranks,
            records_accesses=records_accesses,
            decisions=decisions,
            hang_timeout_seconds=self._hang_timeout_seconds,
            recorders=recorders,
        )
        results = tuple(RankRun() for _ in range(num_ranks))

        def program(rank: int) -> None:
            play(
                scenario,
                subject,
                rank=rank,
                device=torch.device("cpu"),
                result=results[rank],
                recorder=machine.recorders[rank],
            )

        threads, stall = machine.run(program)
        fault = threads_fault(threads, stall, machine.world.mismatch)
        return Run(self.name, results, fault), machine

    def close(self) -> None:
        """Do nothing: simulated ranks end with their run."""
