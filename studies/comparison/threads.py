"""torch's threaded process group, where ranks are threads of one process."""

import queue
import threading

import torch.distributed as dist

from studies.comparison.one_worker import Answer, packed, serve
from studies.stand_ins.threaded_rank import play_threaded_rank
from syncverify.backends.faults import raised_fault
from syncverify.processes.wire import Wire
from syncverify.program.subject_error import SubjectRaisedError
from syncverify.scenario.scenario import Scenario
from syncverify.sim.network.threaded_world import thread_local_world
from syncverify.subjects.subject import Subject
from syncverify.trace.run import RankRun


def play_on_threads(
    scenario: Scenario, subject: Subject, _: Subject | None = None
) -> Answer:
    """Play a scenario on threads of this process.

    Args:
        scenario: The scenario.
        subject: The synchronizer.

    Returns:
        The answer. If a rank raised, the threads of other ranks may still wait for it.
    """
    num_ranks, store = scenario.mesh.num_ranks, dist.HashStore()
    results = [RankRun() for _ in range(num_ranks)]
    ended: queue.SimpleQueue[tuple[int, BaseException | None]] = queue.SimpleQueue()

    def program(rank: int) -> None:
        try:
            play_threaded_rank(scenario, subject, rank, store, results[rank])
        except Exception as error:  # noqa: BLE001  # becomes the answer below
            ended.put((rank, error))
        else:
            ended.put((rank, None))

    with thread_local_world():  # which also registers the `threaded` backend
        for rank in range(num_ranks):
            threading.Thread(target=program, args=(rank,), daemon=True).start()
        for _each in range(num_ranks):
            rank, error = ended.get()
            if error is not None:
                return _raised(error, rank, results)
    return Answer(packed(results))


def _raised(error: BaseException, rank: int, results: list[RankRun]) -> Answer:
    seen = packed(results)  # others wait for this rank, or soon will
    if isinstance(error, SubjectRaisedError):
        return Answer(seen, raised_fault(error, rank))
    return Answer(seen, harness_error=f"rank {rank}: {error!r}")


def main(wire: Wire) -> None:
    """Serve the owner of this process, which `OneWorker` has started."""
    serve(wire, play_on_threads)
