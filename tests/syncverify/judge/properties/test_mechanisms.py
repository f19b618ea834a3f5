"""Each mechanism beside a trace that shows it, and one that shows too little for it."""

from dataclasses import replace

import pytest
import torch

from syncverify.judge.decoding import explain
from syncverify.judge.properties.mechanisms import mechanism
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.layout import ShardsWithoutPadding
from syncverify.trace.records import (
    CollectiveLaunch,
    Moment,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Observation, RankRun
from syncverify.trace.source_lines import SourceLine
from tests.programs import violations
from tests.syncverify.judge.properties.shown_causes import (
    BUCKET,
    ELSEWHERE,
    EXPECTED,
    FIRST_ONLY,
    IN_BUCKET,
    ORACLE,
    OTHER,
    OWN,
    STEP,
    TWICE_SUMMED,
    ZEROS,
    accumulation,
    causes_of,
    copies,
    launch,
)

TOTAL = EXPECTED.value()
LAST_LOST = TOTAL - EXPECTED.part(0, [1])
# Observed value, events, place of `.grad`, cause by the trace.
SHOWN = {
    "no_collective": (OWN, (), ELSEWHERE, "not_reduced"),
    "collectives_of_others": (OWN, (launch(names=("other",)),), ELSEWHERE, "not_reduced"),
    "memory_of_an_earlier_step": (OWN, (launch(step=0), launch(names=("other",))), ELSEWHERE, "view_lost"),
    "memory_of_a_later_step": (OWN, (launch(names=("other",)), launch(step=STEP + 1)), ELSEWHERE, "not_reduced"),
    "two_sums": (TWICE_SUMMED, (launch(), launch(None)), ELSEWHERE, "reduced_twice"),
    "first_micro_batch": (FIRST_ONLY, (launch(0),), ELSEWHERE, "reduced_early"),
    "accumulated_after_launch": (LAST_LOST, (launch(), accumulation()), ELSEWHERE, "reduced_early"),
    "reduced_and_read_elsewhere": (OWN, (launch(),), ELSEWHERE, "result_dropped"),
    "written_and_gone": (ZEROS, (accumulation(), launch(None)), ELSEWHERE, "erased"),
    # Copies are known by their values.
    "copies_of_others": (OWN, (copies(ZEROS),), IN_BUCKET, "not_reduced"),
    "sum_of_what_was_summed": (TWICE_SUMMED, (copies(OWN, 1), copies(TOTAL)), IN_BUCKET, "reduced_twice"),
    "sum_that_was_not_seen_before": (TWICE_SUMMED, (copies(TOTAL),), IN_BUCKET, "reduced_twice"),
    "sent_from_where_it_is_zero": (ZEROS, (copies(OWN),), IN_BUCKET, "erased"),
}  # fmt: skip
SHOWS_NOTHING = {
    "launch_of_unknown": (OWN, (launch(names=(), regions=(ELSEWHERE,)),), ELSEWHERE),
    "mean_of_means": (TWICE_SUMMED, (launch(reduce_op="AVG"), launch(None, reduce_op="AVG")), ELSEWHERE),
    "one_sum": (TWICE_SUMMED, (launch(),), ELSEWHERE),
    "gathered_beside": (TWICE_SUMMED, (launch(), launch(None, operation="all_gather", reduce_op="")), ELSEWHERE),
    "accumulated_before_launch": (LAST_LOST, (accumulation(), launch()), ELSEWHERE),
    "neighbour_accumulated_later": (LAST_LOST, (launch(), accumulation(memory=MemoryRegion(0, 0, 16))), ELSEWHERE),
    "subject_writes_later": (LAST_LOST, (launch(), accumulation(source=SourceLine("a.py", 9, "finish"))), ELSEWHERE),
    "never_accumulated": (ZEROS, (launch(None),), ELSEWHERE),
    "launched_in_the_last_micro_batch": (FIRST_ONLY, (launch(1),), ELSEWHERE),
    "own_copy": (OWN, (copies(OWN),), IN_BUCKET),
    "unknown_copy": (OWN, (copies(OWN / 2),), IN_BUCKET),
    "mean_of_what_was_summed": (TWICE_SUMMED, (copies(TOTAL, reduce_op="AVG"),), IN_BUCKET),
    "sum_of_its_own": (TWICE_SUMMED, (copies(OWN, 1), copies(OWN)), IN_BUCKET),
    "sum_that_is_larger": (TOTAL * 4, (copies(TOTAL),), IN_BUCKET),
    "zeros_were_sent": (ZEROS, (copies(ZEROS),), IN_BUCKET),
    "others_were_sent": (ZEROS, (copies(OWN.flip(0)),), IN_BUCKET),
    "zeros_beside_what_was_sent": (ZEROS, (copies(OWN),), ELSEWHERE),
}  # fmt: skip


@pytest.mark.parametrize(
    ("observed", "events", "where", "kind"), SHOWN.values(), ids=SHOWN
)
def test_trace_names_the_call(
    observed: torch.Tensor,
    events: tuple[TraceRecord, ...],
    where: MemoryRegion,
    kind: str,
) -> None:
    of_value, cause = causes_of(observed, *events, shown_at=where)
    assert cause.kind == kind
    assert cause.text != of_value.text


@pytest.mark.parametrize(
    ("observed", "events", "where"), SHOWS_NOTHING.values(), ids=SHOWS_NOTHING
)
def test_what_a_trace_does_not_show_is_not_said(
    observed: torch.Tensor, events: tuple[TraceRecord, ...], where: MemoryRegion
) -> None:
    of_value, cause = causes_of(observed, *events, shown_at=where)
    assert cause == of_value


@pytest.mark.parametrize(
    ("seen", "where", "kind"),
    [
        (EXPECTED.part(0, [0]), IN_BUCKET, "erased"),
        (EXPECTED.part(0, [0]), ELSEWHERE, "never_written"),
        (EXPECTED.part(0, [1]), IN_BUCKET, "never_written"),
        (ZEROS, IN_BUCKET, "never_written"),
    ],
)
def test_what_was_there_between_micro_batches_is_erased(
    seen: torch.Tensor, where: MemoryRegion, kind: str
) -> None:
    returned = SubjectReturn(Moment("backward", STEP, 0), gradients={"w": where})
    earlier = Observation("accumulated", STEP, 0, {"w": seen})
    sent = copies(ZEROS)
    _, cause = causes_of(ZEROS, returned, sent, shown_at=IN_BUCKET, earlier=(earlier,))
    assert cause.kind == kind


@pytest.mark.parametrize(
    ("alone", "kind", "message"),
    [
        (launch(names=("w",)), "rank_contribution_missing",
            "reduced at a.py:7 in launch (step 1, micro-batch 1, "),
        (
            launch(names=("other",)),
            "not_reduced",
            "own gradient, and the step reduces over rank 0 alone, at a.py:7 in launch (step 1",
        ),
        (launch(names=("w",), step=0), "not_reduced",
            "no collective of the step sent it: none was launched"),
    ],
    ids=["of_it", "of_another", "of_another_step"],
)  # fmt: skip
def test_a_reduction_over_one_rank_is_reported(
    alone: CollectiveLaunch, kind: str, message: str
) -> None:
    _, cause = causes_of(OWN, replace(alone, ranks=(0,)))
    assert cause.kind == kind
    assert message in cause.text


# Gradients that no collective of their step sent.
SENDS_OTHER = replace(
    launch(names=()),
    numel=4,
    contents=(ORACLE.local(OTHER, 0, STEP, (0, 1)).float().numpy().tobytes(),),
    regions=(BUCKET,),
)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((), "no collective of the step sent it: none was launched"),
        ((SENDS_OTHER,), "no collective of the step sent it: they sent other"),
    ],
)
def test_zeros_that_nobody_sends_are_not_reduced(
    events: tuple[TraceRecord, ...], message: str
) -> None:
    _, cause = causes_of(ZEROS, *events, shown_at=IN_BUCKET)
    assert (cause.kind, cause.is_certain) == ("not_reduced", True)
    assert message in cause.text


@pytest.mark.parametrize(
    ("observed", "begin"), [(ZEROS, "it is all zeros"), (OWN, "it is rank 0's own")]
)
def test_hooks_before_accumulation_are_a_likely_reason_that_nobody_sends(
    observed: torch.Tensor, begin: str
) -> None:
    hooked = SubjectReturn(
        Moment("wait", STEP), gradients={"w": IN_BUCKET}, hooked_early=frozenset({"w"})
    )
    wrong = observed.to(torch.float32)
    of_value = explain(EXPECTED, wrong)
    assert of_value is not None
    seen = Observation("reduced", STEP, None, {"w": wrong})
    cause = mechanism(EXPECTED, seen, of_value, RankRun([seen], [hooked]))
    assert (cause.kind, cause.is_certain) == ("hook_too_early", False)
    assert cause.text.startswith(begin)
    sent = RankRun([seen], [launch(names=("other",)), hooked])
    assert mechanism(EXPECTED, seen, of_value, sent).kind != "hook_too_early"


@pytest.mark.parametrize(
    ("dtype", "numel"),
    [
        ("bfloat16", 4),  # each share is gathered after it is reduced
        ("float32", 3),  # the last element is in no share
        ("bfloat16", 5),
    ],
)
def test_a_gradient_beside_shards_and_cut_ones_is_not_reduced(
    dtype: str, numel: int
) -> None:
    specs = (
        ParameterSpec("p0", (), ("R",)),
        ParameterSpec("p1", (numel,), ("R",), dtype),
    )
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), bucket_cap_bytes=1)
    found = violations(ShardsWithoutPadding, scenario)
    first = next(each for each in found if each.parameters == ("p0",))
    assert first.cause == "not_reduced"
    assert first.summary.endswith("no collective of the step sent it: they sent p1")
