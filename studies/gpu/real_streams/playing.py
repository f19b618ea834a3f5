"""Play a scenario with ranks that are threads on the real streams of one device."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import torch
import torch.distributed as dist

from studies.gpu.real_streams.lanes import KINDS, Kind, Lanes, default_streams_of_ranks
from studies.gpu.real_streams.recorder import StreamRecorder, on_own_thread
from syncverify.judge.properties import judge_run
from syncverify.late_imports import import_dynamo
from syncverify.playing.faults import threads_fault
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.program.graphs import cpp
from syncverify.playing.program.rank_program import play_part
from syncverify.scenario.scenario import Scenario
from syncverify.sim.machine import registered_backend
from syncverify.sim.network.communicator import BACKEND_NAME
from syncverify.sim.network.rendezvous import SimulatedWorld
from syncverify.sim.network.store import SimulatedStore
from syncverify.sim.network.threaded_world import thread_local_world
from syncverify.sim.process_wide.settings import no_collection_of_cycles
from syncverify.sim.sharding_plans import obvious_plans
from syncverify.sim.turns.scheduler import Scheduler
from syncverify.subjects.subject import Subject
from syncverify.trace.run import RankRun, Run

_HANG_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class StreamedRun:
    """One run on real streams.

    Attributes:
        run: Observations and launches of the ranks.
        operators: By rank, `StreamRecorder.operators`.
    """

    run: Run
    operators: tuple[list[tuple[str, str]], ...]


def play_on_streams(
    scenario: Scenario, subject: Subject, device: torch.device, slow: Kind | None = None
) -> StreamedRun:
    """Play a scenario once.

    Args:
        scenario: Mesh, parameters and steps of the program.
        subject: The synchronizer under test.
        device: Device that all ranks share.
        slow: Kind of streams whose work is delayed.

    Returns:
        The run, which waits for the device at each observation.
    """
    import_dynamo()
    cpp.prepare(spec.use for spec in scenario.parameters)
    num_ranks = scenario.mesh.num_ranks
    taken: dict[object, list[object]] = {}
    lanes = [Lanes(device, slow) for _ in range(num_ranks)]
    recorders = [StreamRecorder(own, taken) for own in lanes]  # type: ignore[arg-type]  # one table
    scheduler = Scheduler(
        num_ranks,
        progress=lambda: sum(len(recorder.trace) for recorder in recorders),
        hang_timeout_seconds=_HANG_TIMEOUT_SECONDS,
    )
    world = SimulatedWorld(scheduler, recorders)
    store = SimulatedStore(scheduler)
    results = tuple(RankRun() for _ in range(num_ranks))

    def run_rank(rank: int) -> None:
        with lanes[rank].as_current(), on_own_thread():
            dist.init_process_group(
                BACKEND_NAME, rank=rank, world_size=num_ranks, store=store
            )
            try:
                play_part(
                    scenario, subject, rank=rank, device=device, result=results[rank],
                    recorder=recorders[rank],
                )  # fmt: skip
            finally:
                if dist.is_initialized():
                    dist.destroy_process_group()

    with ExitStack() as stack:
        for context in (
            thread_local_world(), registered_backend(world), obvious_plans(),
            no_collection_of_cycles(), default_streams_of_ranks(), exact_arithmetic(device),
        ):  # fmt: skip
            stack.enter_context(context)
        threads, stall = scheduler.run(run_rank)
        torch.get_device_module(device).synchronize()  # delayed work may be left
    fault = threads_fault(threads, stall, world.mismatch)
    run = Run("real streams", results, fault, device=device)
    return StreamedRun(run, tuple(recorder.operators for recorder in recorders))


def verdicts_on_streams(
    scenario: Scenario, subject: Subject, device: torch.device
) -> Iterator[tuple[Kind | None, list[str]]]:
    """Play a scenario without delays and with each kind of them, and judge each run.

    Yields:
        The kind of slow streams, and the violations as `property (cause)`.
    """
    for slow in (None, *KINDS):
        run = play_on_streams(scenario, subject, device, slow).run
        yield slow, judged(scenario, run, subject)


def judged(scenario: Scenario, run: Run, subject: Subject) -> list[str]:
    """Judge a run, and name its violations as `property (cause)`."""
    found = judge_run(scenario, run, subject.capabilities).violations
    return ["{} ({})".format(*each.identity) for each in found]
