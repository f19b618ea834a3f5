"""The cost of a run is counted from its trace."""

from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.repair.cost import Cost, MeasuringRecorder, cost_of
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import Subject
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    Moment,
    SubjectCall,
    TraceRecord,
)
from syncverify.trace.source_lines import NoLine
from tests.syncverify.judge.properties import handmade_traces

BACKWARD, WAIT = Moment("backward", 0, 0), Moment("wait", 0)


def operator() -> Access:
    return Access(BACKWARD, "default", "aten.mul.Tensor", (), (), NoLine.AUTOGRAD)


def launch(sequence: int, moment: Moment = BACKWARD) -> CollectiveLaunch:
    changes = {"moment": moment, "numel": 2, "communication_stream": "nccl"}
    return handmade_traces.launch("dp", (0, 1), sequence, **changes)


def wait(sequence: int, moment: Moment) -> CollectiveWait:
    return CollectiveWait(moment, (0, 1), sequence, communicator="dp")


def cost(*records: TraceRecord) -> Cost:
    return cost_of([records, records], 12)


def test_operators_after_a_launch_run_beside_it() -> None:
    found = cost(operator(), launch(0), operator(), operator(), wait(0, WAIT))
    assert found == Cost(
        launches=2,
        reductions=2,
        bursts=2,
        reduced_bytes=16,
        early_bytes=16,
        followed=32,
        beside=32,
        waited=round(16 / 3, 6),
        peak_bytes=12,
    )
    assert (found.overlap, round(found.delay, 3)) == (1.0, 0.333)


def test_a_wait_in_backward_leaves_nothing_beside() -> None:
    found = cost(launch(0), wait(0, BACKWARD), operator(), operator())
    assert (found.followed, found.beside, found.overlap) == (32, 0, 0.0)


def test_launches_without_an_operator_in_between_are_one_burst() -> None:
    together = cost(launch(0), launch(1), operator(), launch(2))
    assert (together.launches, together.bursts) == (6, 4)
    apart = cost(launch(0), SubjectCall(WAIT), launch(1, WAIT))
    assert (apart.bursts, apart.early_bytes) == (4, 16)


def test_a_run_without_collectives_costs_nothing() -> None:
    assert cost(operator(), SubjectCall(WAIT)) == Cost(peak_bytes=12)


class Silent(ViewBuckets):
    """Never sends a bucket."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return False


def test_memory_of_autograd_counts_wherever_a_launch_is() -> None:
    scenario = Scenario(
        MeshSpec((2,), ("dp",)), (ParameterSpec("w", (3,), ("R",)),), (1,), 1 << 20
    )
    peaks = list[int]()
    for factory in (ViewBuckets, Silent):
        recorders = [MeasuringRecorder(), MeasuringRecorder()]
        subject = Subject(factory.__name__, factory, Capabilities())
        SimBackend().run(scenario, subject, Schedule(), recorders)
        peaks += [each.peak_bytes for each in recorders]
    # A parameter, its bucket, and the gradient that autograd adds to the bucket.
    assert min(peaks) == max(peaks) >= 36
