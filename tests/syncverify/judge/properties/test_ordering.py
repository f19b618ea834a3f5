"""The property that a missing wait violates, and its message."""

import pytest

from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.judgement import Judgement, merge
from syncverify.judge.reference import reference
from syncverify.judge.violation import Violation
from syncverify.report.evidence import evidence_json
from syncverify.report.hints import hint_of
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.trace.run import RankRun, Run
from tests.syncverify.judge.ordering.micro_traces import traces
from tests.syncverify.judge.ordering.steps import STEPS, with_line, without

ORDERINGS = {
    "reduce_reads_after_accumulation", "bucket_is_exclusive_while_reducing",
    "wait_orders_reads_after_reduce", "zero_grad_waits_for_reduce",
    "memory_outlives_its_streams", "stream_context_is_restored", "overlap_is_possible",
}  # fmt: skip


def judgement(*programs: str) -> Judgement:
    """Return traces as if they came from a scenario of three steps."""
    scenario = Scenario(
        MeshSpec((len(programs),), ("dp",)),
        (ParameterSpec("b", (4,), ("R",)),),
        (1, 1, 1),
        64,
    )
    capabilities = Capabilities(overlaps_backward=True)
    ranks = tuple(RankRun(trace=events) for events in traces(*programs))
    run = Run("test", ranks)
    return Judgement(scenario, run, reference(scenario, capabilities))


def violations(*programs: str) -> list[Violation]:
    judged = judgement(*programs)
    return [
        violation
        for entry in ALL_PROPERTIES
        if entry.name in ORDERINGS
        for violation in merge(entry.name, entry.check(judged))
    ]


def test_correct_steps_violate_nothing() -> None:
    assert violations(STEPS, STEPS) == []


DEFECTS = {
    "the launch does not wait": (without("fork"), "reduce_reads_after_accumulation",
        "reduced_before_accumulated"),
    "the flat copy on the side stream does not wait": (
        with_line(
            "launch",
            "@copy r b[0:16] side; @launch gather c# f[0:16] f[0:16] side>nccl",
            without("fork"),
        ),
        "reduce_reads_after_accumulation",
        "accumulated_unordered",
    ),
    "the result is divided without waiting": (without("await"),
        "bucket_is_exclusive_while_reducing", "touched_in_flight"),
    "two communicators on one bucket": (
        with_line(
            "launch",
            "@launch reduce c# b[0:16] side>nccl; @again reduce d# b[0:16] side>other",
            with_line("await", "await c# side; await d# side"),
        ),
        "bucket_is_exclusive_while_reducing",
        "collectives_overlap",
    ),
    "wait() waits for nothing": (without("join"), "wait_orders_reads_after_reduce",
        "read_before_reduced"),
    "zeroed on another stream": (with_line("zero", "@zero w b[0:16] third; wait default third"),
        "zero_grad_waits_for_reduce", "zeroed_in_flight"),
    "the next step does not wait for the zeros": (
        with_line("zero", "wait third default; @zero w b[0:16] third"),
        "zero_grad_waits_for_reduce", "used_before_zeroed"),
    "a temporary of the side stream is dropped": (
        with_line("divide",
        "r t[0:4] default; wait side default; @use r t[0:4] side; free t default"),
        "memory_outlives_its_streams", "freed_in_use"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("program", "name", "cause"), DEFECTS.values(), ids=DEFECTS.keys()
)
def test_one_defect_violates_one_property(program: str, name: str, cause: str) -> None:
    assert program != STEPS
    (found,) = violations(STEPS, program)
    assert found.identity == (name, cause)
    assert found.ranks == (1,)
    assert found.evidence.remedy.endswith(
        (": holds", ": orders 3 of 6 such pairs; the others need another wait")
    )
    assert hint_of(found.cause)


def test_a_missing_wait_is_reported_once() -> None:
    (found,) = violations(STEPS, without("fork"))
    assert found.parameters == ("b",)
    assert found.summary == (
        "rank 1: nothing orders aten.rw at hook before all_reduce at launch (gradients of b)"
    )
    assert evidence_in_report(found) == {
        "first": "aten.rw at hook (step 0, micro-batch 0, backward), on stream 'default'",
        "second": "all_reduce SUM of 1 x float32 over ranks [0, 1], at launch (step 0, "
        "micro-batch 0, backward), running on stream 'nccl'",
        "memory": "bytes 8 to 16 of storage 98 (gradients of b)",
        "remedy": "insert `side.wait_stream(default)` before launch: holds",
    }


def evidence_in_report(found: Violation) -> dict[str, str]:
    seen = evidence_json(found.cause, found.evidence)
    return {name: seen[name] for name in ("first", "second", "memory", "remedy")}


def test_a_use_of_gradients_after_unbind_counts_as_a_read() -> None:
    program = (
        "call unbind 2; w b[0:16] side; return; call after_unbind 3; rw b[0:16] default"
    )
    (found,) = violations(program)
    assert found.identity == ("wait_orders_reads_after_reduce", "read_before_reduced")
