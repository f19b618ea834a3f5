"""One wrong gradient on two ranks, and its causes: by the value, and by the trace."""

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.properties.mechanisms import mechanism
from syncverify.judge.reference import ExpectedGradient, reference
from syncverify.judge.violation import Cause
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    Moment,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion, ParameterSlot
from syncverify.trace.run import Observation, RankRun
from syncverify.trace.source_lines import NoLine, Origin, SourceLine

WEIGHT = ParameterSpec("w", (4,), ("R",))
OTHER = ParameterSpec("other", (4,), ("R",))
SCENARIO = Scenario(MeshSpec((2,), ("dp",)), (WEIGHT, OTHER), (2, 2), 2**20)
ORACLE = reference(SCENARIO, Capabilities())
STEP = 1
EXPECTED = ExpectedGradient(ORACLE, WEIGHT, 0, STEP, 2, (0, 1), 1)
BUCKET = MemoryRegion(0, 0, 32)  # `other`, then `w`
IN_BUCKET, ELSEWHERE = MemoryRegion(0, 16, 32), MemoryRegion(7, 0, 16)

OWN = EXPECTED.part(0)
TWICE_SUMMED = EXPECTED.value() * 2
FIRST_ONLY = EXPECTED.part(0, [0]) + EXPECTED.part(1, [0])
ZEROS = torch.zeros(4)


def launch(
    micro_batch: int | None = 1,
    *,
    names: tuple[str, ...] = ("other", "w"),
    step: int = STEP,
    regions: tuple[MemoryRegion, ...] = (BUCKET,),
    reduce_op: str = "SUM",
    operation: str = "all_reduce",
    contents: tuple[bytes, ...] = (),
) -> CollectiveLaunch:
    phase = "wait" if micro_batch is None else "backward"
    return CollectiveLaunch(
        moment=Moment(phase, step, micro_batch),
        ranks=(0, 1),
        sequence=0,
        operation=operation,
        reduce_op=reduce_op,
        dtype="float32",
        numel=8,
        regions=regions,
        parameters=names,
        source=SourceLine("a.py", 7, "launch"),
        slots=tuple(
            ParameterSlot(name, offset, 16)
            for name, offset in (("other", 0), ("w", 16))
            if name in names
        ),
        contents=contents,
    )


def copies(
    of_weight: torch.Tensor, micro_batch: int | None = None, *, reduce_op: str = "SUM"
) -> CollectiveLaunch:
    """Send values of `w` behind the own gradient of `other`, as copies without a name."""
    of_other = ORACLE.local(OTHER, 0, STEP, (0, 1))
    sent = torch.cat([of_other, of_weight]).float().numpy().tobytes()
    return launch(micro_batch, names=(), contents=(sent,), reduce_op=reduce_op)


def accumulation(
    micro_batch: int = 1,
    memory: MemoryRegion = IN_BUCKET,
    source: Origin = NoLine.AUTOGRAD,
) -> Access:
    moment = Moment("backward", STEP, micro_batch)
    return Access(moment, "default", "aten.add_.Tensor", (), (memory,), source)


def causes_of(
    observed: torch.Tensor,
    *events: TraceRecord,
    shown_at: MemoryRegion = ELSEWHERE,
    earlier: tuple[Observation, ...] = (),
) -> tuple[Cause, Cause]:
    wrong = observed.to(torch.float32)
    of_value = explain(EXPECTED, wrong)
    assert of_value is not None
    returned = SubjectReturn(Moment("wait", STEP), gradients={"w": shown_at})
    seen = Observation("reduced", STEP, None, {"w": wrong})
    rank_run = RankRun([*earlier, seen], [*events, returned])
    return of_value, mechanism(EXPECTED, seen, of_value, rank_run)
