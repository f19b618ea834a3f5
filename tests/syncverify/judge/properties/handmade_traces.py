"""Traces written by hand, for cases that no subject here shows."""

from collections.abc import Sequence

from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.judge.violation import Violation
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.trace.records import CollectiveLaunch, Moment, TraceRecord
from syncverify.trace.regions import ParameterSlot
from syncverify.trace.run import Fault, RankRun, Run
from syncverify.trace.source_lines import SourceLine

PARAMETERS = (
    ParameterSpec("p", (4,), ("R",)),
    ParameterSpec("q", (4,), ("R",)),
    ParameterSpec("few", (1,), ("S0",)),  # rank 0 alone has bytes of it
)


def launch(
    communicator: str,
    ranks: tuple[int, ...],
    sequence: int,
    slots: Sequence[tuple[str, int]] = (),
    **changes: object,
) -> CollectiveLaunch:
    """Write down an all-reduce; slots are names and offsets, of 16 bytes each."""
    fields = {
        "moment": Moment("wait", 0),
        "operation": "all_reduce",
        "reduce_op": "SUM",
        "dtype": "float32",
        "numel": 4,
        "regions": (),
        "parameters": tuple(name for name, _ in slots),
        "source": SourceLine("a.py", sequence, communicator),
        "slots": tuple(ParameterSlot(name, offset, 16) for name, offset in slots),
        **changes,
    }
    return CollectiveLaunch(
        communicator=communicator, ranks=ranks, sequence=sequence, **fields
    )


def judgement(*events: Sequence[TraceRecord], fault: Fault | None = None) -> Judgement:
    """Put the events of each rank beside a scenario on as many ranks."""
    scenario = Scenario(MeshSpec((len(events),), ("dp",)), PARAMETERS, (1,), 64)
    ranks = tuple(RankRun(trace=list(own)) for own in events)
    run = Run("fake", ranks, fault, carries_data=False)
    return Judgement(scenario, run, reference(scenario, Capabilities()))


def causes(findings: Sequence[Violation]) -> set[str]:
    return {finding.cause for finding in findings}
