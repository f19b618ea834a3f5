"""The `streams` backend: each rank is a process with simulated streams, and they take turns.

It plays subjects that keep state for a whole process, which ranks that are threads cannot, and
judges the order of their streams, which gloo cannot.
"""

from __future__ import annotations

from syncverify.errors import InternalError
from syncverify.playing.announcement import announce
from syncverify.playing.faults import hub_fault
from syncverify.playing.messages import unpack_result
from syncverify.playing.workers import WorkerPool
from syncverify.processes.silence import HANG_TIMEOUT_SECONDS
from syncverify.scenario.scenario import Scenario
from syncverify.sim.apart.hub import HeardRank, Hub
from syncverify.subjects.subject import Subject
from syncverify.trace.run import RankRun, Run

_WORKER = "syncverify.playing.streams_worker"


class StreamsBackend:
    """Plays scenarios on simulated ranks that are processes."""

    name = "streams"

    def __init__(self) -> None:
        self._pool = WorkerPool(_WORKER)

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario on one process per rank."""
        announce(scenario)
        hub = Hub(self._pool.play(scenario, subject), HANG_TIMEOUT_SECONDS)
        is_used_up = True
        try:
            hub.run()
            outcomes = hub.outcomes()
            for outcome in outcomes:
                outcome.raise_usage_error()
                if outcome.harness_error is not None:
                    raise InternalError(outcome.harness_error)
            fault = hub_fault(hub, (each.fault for each in outcomes))
            is_used_up = fault is not None
        finally:
            if is_used_up:
                for rank in range(len(hub.ranks)):
                    self._pool.discard(rank)
        return Run(self.name, tuple(map(_rank_run, hub.ranks)), fault)

    def close(self) -> None:
        """End the processes."""
        self._pool.close()


def _rank_run(own: HeardRank) -> RankRun:
    came_to = own.ended and own.ended.came_to
    if came_to and came_to.result:
        return unpack_result(came_to.result)
    return RankRun(trace=own.trace)
