"""The remedy names the wait that was taken away."""

import functools
from dataclasses import replace

import pytest

from syncverify.judge.ordering.happens_before import Semantics
from syncverify.judge.ordering.missing_waits import BeforeUse, WaitForWork, with_edge
from syncverify.judge.ordering.races import judge_orderings
from syncverify.judge.ordering.remedies import disorders
from syncverify.trace.records import CollectiveWait
from syncverify.trace.run import Traces
from tests.syncverify.judge.ordering.case_pairs import CASES
from tests.syncverify.judge.ordering.micro_traces import AT, labelled, traces
from tests.syncverify.judge.ordering.steps import STEPS, without


def remedies(ranks: Traces, semantics: Semantics = "stream") -> list[str]:
    return [str(disorder.remedy) for disorder in disorders(ranks, semantics)]


def stream(waiting: str, awaited: str, place: str) -> str:
    return f"insert `{waiting}.wait_stream({awaited})` before {place}"


def work(current: str, place: str) -> str:
    return (
        "insert `work.wait()` of the all_reduce launched at launch, while "
        f"`{current}` is current, before {place}: holds"
    )


def some(num_ordered: int, num_pairs: int, call: str = "wait") -> str:
    others = "the other needs" if num_pairs - num_ordered == 1 else "the others need"
    return f": orders {num_ordered} of {num_pairs} such pairs; {others} another {call}"


JOIN = stream("default", "side", "wait() returns")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fork", stream("side", "default", "launch") + ": holds"),
        ("join", JOIN + ": holds"),
        ("await", work("side", "divide")),
    ],
)
def test_a_wait_that_is_taken_away_is_asked_for(line: str, expected: str) -> None:
    """One line less in every step of every rank: one disorder, one edge."""
    program = without(line)
    assert program != STEPS
    assert remedies(traces(program, program)) == [expected]
    assert remedies(traces(STEPS, program)) == [expected]


CASES_OF_REMEDIES: dict[str, tuple[str, list[str]]] = {
    "two waits that are missing are two disorders": (without("fork", without("join")),
        [stream("side", "default", "launch") + some(16, 26), JOIN + ": holds"]),
    "a stream that has the result is waited for rather than the work": (
        without("join", without("divide")), [JOIN + ": holds"]),
    "of edges that do as much the one in the subject is reported": (
        without("join") + "w q[0:4] one; @other w q[0:4] two",
        [JOIN + some(10, 11), stream("two", "one", "other") + ": holds"]),
    "two writers need two edges": (
        "w b[0:4] one; w b[4:8] two; @launch reduce c b[0:8] side>nccl",
        [f"{stream('side', 'two', 'launch')} and {stream('side', 'one', 'launch')}: holds"]),
    "a use outside of any call is waited for at the use": (
        "w b[0:4] default; @copy r b[0:4] side",
        [stream("side", "default", "copy") + ": holds"]),
    "work whose stream has no name is waited for itself": (
        "@launch reduce c b[0:4] default>nccl; @refill w b[0:4] default",
        [work("default", "refill")]),
    "memory of a named stream is recorded": (
        ("w b[0:4] default; wait side default; @copy r b[0:4] side; free b default;"
        "w c[0:4] default"), [
        ("insert `tensor.record_stream(side)` after copy, or hold a reference until its "
        "stream waited for `side`: holds")]),
    "memory in flight is held until the work is done": (
        "@launch reduce c b[0:4] default>nccl; free b default; w x[0:4] default; await c default",
        [work("default", "the last reference to its memory goes away")],
    ),
    # No line can be inserted into autograd; the call before it is the subject's.
    "a wait of backward is placed where the subject can add it": (
        ("call zero_grad 0; @zero w b[0:4] side; return;"
        "call backward 1 0; @autograd rw b[0:4] default"),
        [stream("default", "side", "zero_grad() returns") + ": holds"]),
    "one writer and several readers are distinguished": (
        "w b[0:4] default; @one r b[0:4] side; @two r b[0:4] third",
        [stream("side", "default", "one") + some(1, 2),
        stream("third", "default", "two") + ": holds"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("program", "expected"), CASES_OF_REMEDIES.values(), ids=CASES_OF_REMEDIES.keys()
)
def test_a_remedy_is_the_edge_that_is_missing(
    program: str, expected: list[str]
) -> None:
    assert remedies(traces(program)) == expected


def test_several_uses_of_freed_memory_are_distinguished_and_from_races() -> None:
    program = """
        @one r b[0:4] side; @two r b[0:4] third; free b default;
        w c[0:4] default; @three r c[0:4] side
    """
    recorded = "`record_stream()`"
    assert remedies(traces(program)) == [
        f"insert `side.wait_stream(default)` before three{some(1, 3, recorded)}",
        (
            "insert `tensor.record_stream(side)` after one, or hold a reference until "
            f"its stream waited for `side`{some(1, 2, recorded)}"
        ),
        (
            "insert `tensor.record_stream(third)` after two, or hold a reference until "
            "its stream waited for `third`: holds"
        ),
    ]


def test_the_rest_of_a_remedy_needs_each_call_that_a_pair_there_needs() -> None:
    program = (
        "@one r b[0:4] side; free b default; w c[0:4] default; r c[0:4] x; r c[0:4] y"
    )
    first, *_ = remedies(traces(program))
    assert first.endswith(some(1, 3, "wait or `record_stream()`"))


def test_one_remedy_has_few_edges() -> None:
    writers = "; ".join(f"w b[{n}:{n + 1}] s{n}" for n in range(5))
    first, second = disorders(traces(f"{writers}; @all r b[0:5] default"))
    assert (len(first.remedy.edges), len(second.remedy.edges)) == (4, 1)


WRONG = [case for case in CASES if case.label != "legal"]


def test_every_labelled_disorder_has_a_remedy_that_holds() -> None:
    """Applied, not believed: the edges make the trace legal."""
    assert WRONG
    for case in WRONG:
        ranks: Traces = traces(*case.programs)
        found = [*disorders(ranks, case.semantics)]
        assert found, case.name
        for disorder in found:
            assert disorder.remedy is not None, case.name
            ranks = functools.reduce(with_edge, disorder.remedy.edges, ranks)
        judged = judge_orderings(ranks, case.semantics)
        assert not judged.races, case.name
        assert not judged.early_frees, case.name


def test_work_is_known_by_its_communicator_and_its_ranks() -> None:
    ranks = traces("@launch reduce a b[0:4] default>nccl; @use r b[0:4] side")
    launched = replace(ranks[0][0], communicator="dp", ranks=(0, 1))
    edge = WaitForWork(
        "side", "all_reduce", labelled("launch"), BeforeUse(labelled("use"), "side")
    )
    (after,) = with_edge([[launched, ranks[0][1]]], edge)
    assert after[1] == CollectiveWait(AT, (0, 1), ord("a"), "side", "dp")
