"""torch's threaded process group, where ranks are threads of one process."""

from studies.comparison.one_worker import Answer, packed, serve
from studies.stand_ins.threaded_rank import played_on_threads
from syncverify.backends.faults import raised_fault
from syncverify.processes.wire import Wire
from syncverify.program.subject_error import SubjectRaisedError
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject


def play_on_threads(
    scenario: Scenario, subject: Subject, _: Subject | None = None
) -> Answer:
    """Play a scenario on threads of this process.

    Args:
        scenario: Mesh, parameters and steps of the program.
        subject: The synchronizer.

    Returns:
        The answer. If a rank raised, the threads of other ranks may still wait for it.
    """
    results, failed = played_on_threads(scenario, subject)
    seen = packed(results)  # others wait for the rank that failed, or soon will
    if failed is None:
        return Answer(seen)
    rank, error = failed
    if isinstance(error, SubjectRaisedError):
        return Answer(seen, raised_fault(error, rank))
    return Answer(seen, harness_error=f"rank {rank}: {error!r}")


def main(wire: Wire) -> None:
    """Serve the owner of this process, which `OneWorker` has started."""
    serve(wire, play_on_threads)
