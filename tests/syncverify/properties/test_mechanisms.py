"""Each mechanism beside a trace that shows it, and one that shows too little for it."""

import pytest
import torch

from syncverify.decoding import Cause, explain
from syncverify.memory import MemoryRegion
from syncverify.oracle import reference
from syncverify.owed import Owed
from syncverify.properties.judgement import Judgement
from syncverify.properties.mechanisms import mechanism
from syncverify.properties.values import accumulation_is_local_until_reduced
from syncverify.report.hints import hint
from syncverify.run import Observation, RankRun, Run
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.slots import ParameterSlot
from syncverify.subject import Capabilities
from syncverify.trace import AUTOGRAD, Access, CollectiveLaunch, Event, Moment

WEIGHT = ParameterSpec("w", (4,), ("R",))
OTHER = ParameterSpec("other", (4,), ("R",))
SCENARIO = Scenario(MeshSpec((2,), ("dp",)), (WEIGHT, OTHER), (2, 2), 2**20)
ORACLE = reference(SCENARIO, Capabilities())
STEP = 1
OWED = Owed(ORACLE, WEIGHT, 0, STEP, 2, (0, 1), 1)
BUCKET = MemoryRegion(0, 0, 32)  # `other`, then `w`
IN_BUCKET, ELSEWHERE = MemoryRegion(0, 16, 32), MemoryRegion(7, 0, 16)

OWN = OWED.part(0)
TWICE_SUMMED = OWED.value() * 2
FIRST_ONLY = OWED.part(0, [0]) + OWED.part(1, [0])
ZEROS = torch.zeros(4)


def launch(
    micro_batch: int | None = 1,
    *,
    names: tuple[str, ...] = ("other", "w"),
    step: int = STEP,
    regions: tuple[MemoryRegion, ...] = (BUCKET,),
    reduce_op: str = "SUM",
    operation: str = "all_reduce",
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
        source="a.py:7 in launch",
        slots=tuple(
            ParameterSlot(name, offset, 16)
            for name, offset in (("other", 0), ("w", 16))
            if name in names
        ),
    )


def accumulation(
    micro_batch: int = 1, memory: MemoryRegion = IN_BUCKET, source: str = AUTOGRAD
) -> Access:
    moment = Moment("backward", STEP, micro_batch)
    return Access(moment, "default", "aten.add_.Tensor", (), (memory,), source)


def told(observed: torch.Tensor, *events: Event) -> tuple[Cause, Cause]:
    """Return what the value alone tells, and what the trace adds."""
    wrong = observed.to(torch.float32)
    of_value = explain(OWED, wrong)
    assert of_value is not None
    return of_value, mechanism(OWED, wrong, of_value, events)


SHOWN = {
    "no_collective": (OWN, (), "not_reduced"),
    "collectives_of_others": (OWN, (launch(names=("other",)),), "not_reduced"),
    "memory_of_an_earlier_step": (
        OWN,
        (launch(step=0), launch(names=("other",))),
        "view_lost",
    ),
    "memory_of_a_later_step": (
        OWN,
        (launch(names=("other",)), launch(step=STEP + 1)),
        "not_reduced",
    ),
    "two_sums": (TWICE_SUMMED, (launch(), launch(None)), "reduced_twice"),
    "first_micro_batch": (FIRST_ONLY, (launch(0),), "reduced_early"),
    "accumulated_after_launch": (
        OWED.value() - OWED.part(0, [1]),
        (launch(), accumulation()),
        "reduced_early",
    ),
    "written_and_gone": (ZEROS, (accumulation(), launch(None)), "erased"),
}


@pytest.mark.parametrize(
    ("observed", "events", "kind"), SHOWN.values(), ids=SHOWN.keys()
)
def test_trace_names_the_call(
    observed: torch.Tensor, events: tuple[Event, ...], kind: str
) -> None:
    of_value, cause = told(observed, *events)
    assert cause.kind == kind
    assert cause.text != of_value.text
    assert hint(kind)


SHOWS_NOTHING = {
    "launch_of_unknown": (OWN, (launch(names=(), regions=(ELSEWHERE,)),)),
    "reduced_and_read_elsewhere": (OWN, (launch(),)),
    "mean_of_means": (
        TWICE_SUMMED,
        (launch(reduce_op="AVG"), launch(None, reduce_op="AVG")),
    ),
    "one_sum": (TWICE_SUMMED, (launch(),)),
    "gathered_beside": (
        TWICE_SUMMED,
        (launch(), launch(None, operation="all_gather", reduce_op="")),
    ),
    "accumulated_before_launch": (
        OWED.value() - OWED.part(0, [1]),
        (accumulation(), launch()),
    ),
    "neighbour_accumulated_later": (
        OWED.value() - OWED.part(0, [1]),
        (launch(), accumulation(memory=MemoryRegion(0, 0, 16))),
    ),
    "subject_writes_later": (
        OWED.value() - OWED.part(0, [1]),
        (launch(), accumulation(source="a.py:9 in finish")),
    ),
    "never_accumulated": (ZEROS, (launch(None),)),
    "launched_in_the_last_micro_batch": (FIRST_ONLY, (launch(1),)),
}


@pytest.mark.parametrize(
    ("observed", "events"), SHOWS_NOTHING.values(), ids=SHOWS_NOTHING.keys()
)
def test_what_a_trace_does_not_show_is_not_said(
    observed: torch.Tensor, events: tuple[Event, ...]
) -> None:
    of_value, cause = told(observed, *events)
    assert cause == of_value


def test_place_of_each_call_is_named() -> None:
    _, cause = told(TWICE_SUMMED, launch(), launch(None))
    assert "a.py:7 in launch (step 1, micro-batch 1, backward)" in cause.text
    assert "a.py:7 in launch (step 1, wait)" in cause.text


def test_what_comes_later_does_not_explain_what_is_seen_between_micro_batches() -> None:
    later = RankRun(events=[accumulation(1), launch(1)])
    seen = {"w": torch.zeros(4), "other": None}
    later.observations.append(Observation("accumulated", STEP, 0, seen))
    run = Run("sim", (later, RankRun()))
    found = accumulation_is_local_until_reduced(Judgement(SCENARIO, run, ORACLE))
    assert [finding.cause for finding in found] == ["never_written"]
