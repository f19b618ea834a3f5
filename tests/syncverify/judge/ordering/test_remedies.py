"""The remedy names the wait that was taken away."""

from collections.abc import Sequence

import pytest

from syncverify.judge.ordering.happens_before import Semantics
from syncverify.judge.ordering.missing_waits import Edge
from syncverify.judge.ordering.races import EarlyFree, Race, judge_orderings
from syncverify.judge.ordering.remedies import disorders
from syncverify.trace.run import Traces
from tests.syncverify.judge.ordering.labelled import CASES
from tests.syncverify.judge.ordering.micro_traces import traces
from tests.syncverify.judge.ordering.steps import STEPS, without


def remedies(ranks: Traces, semantics: Semantics = "stream") -> list[str]:
    return [str(disorder.remedy) for disorder in disorders(ranks, semantics)]


def test_nothing_is_missing_from_the_whole() -> None:
    assert disorders(traces(STEPS, STEPS)) == []
    assert disorders(traces(STEPS, without("join"))) != []


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


def test_pairs_keep_their_places_though_a_remedy_before_adds_records() -> None:
    ranks = traces(without("fork", without("join")))
    fork, join = disorders(ranks)
    races = [*fork.found, *join.found]
    assert {*map(type, races)} == {Race}
    for found in races:
        assert isinstance(found, Race)
        assert ranks[found.rank][found.first_index] is found.first
        assert ranks[found.rank][found.second_index] is found.second


CASES_OF_REMEDIES: dict[str, tuple[str, list[str]]] = {
    "two waits that are missing are two disorders": (
        without("fork", without("join")),
        [stream("side", "default", "launch") + some(16, 26), JOIN + ": holds"],
    ),
    "a stream that has the result is waited for rather than the work": (
        without("join", without("divide")),
        [JOIN + ": holds"],
    ),
    # It knows of the work by another stream, and waits for it itself only later.
    "a stream that has more than the result is waited for": (
        """
        reduce n b[0:4] default>nccl; await n side; w c[0:4] third; wait third side;
        @use r b[0:4] default; @use r c[0:4] default; await n third
        """,
        [stream("default", "third", "use") + ": holds"],
    ),
    "of edges that do as much the one in the subject is reported": (
        without("join") + "w q[0:4] one; @other w q[0:4] two",
        [JOIN + some(10, 11), stream("two", "one", "other") + ": holds"],
    ),
    "an edge that orders other pairs only is no remedy": (
        """
        call wait 0; return; w b[0:4] default; @one r b[0:4] side;
        call wait 1; w c[0:4] default; w d[0:4] default; return;
        @two r c[0:4] side; @three r d[0:4] side
        """,
        [
            stream("side", "default", "one") + some(1, 3),
            stream("side", "default", "wait() returns") + ": holds",
        ],
    ),
    "two writers need two edges": (
        "w b[0:4] one; w b[4:8] two; @launch reduce c b[0:8] side>nccl",
        [
            f"{stream('side', 'two', 'launch')} and {stream('side', 'one', 'launch')}: holds"
        ],
    ),
    "a use outside of any call is waited for at the use": (
        "w b[0:4] default; @copy r b[0:4] side",
        [stream("side", "default", "copy") + ": holds"],
    ),
    "work whose stream has no name is waited for itself": (
        "@launch reduce c b[0:4] default>nccl; @refill w b[0:4] default",
        [work("default", "refill")],
    ),
    "memory of a named stream is recorded": (
        (
            "w b[0:4] default; wait side default; @copy r b[0:4] side; free b default;"
            "w c[0:4] default"
        ),
        [
            (
                "insert `tensor.record_stream(side)` after copy, or hold a reference until its "
                "stream waited for `side`: holds"
            )
        ],
    ),
    "memory in flight is held until the work is done": (
        "@launch reduce c b[0:4] default>nccl; free b default; w x[0:4] default; await c default",
        [work("default", "the last reference to its memory goes away")],
    ),
    # No line can be inserted into autograd; the call before it is the subject's.
    "a wait of backward is placed where the subject can add it": (
        (
            "call zero_grad 0; @zero w b[0:4] side; return;"
            "call backward 1 0; @autograd rw b[0:4] default"
        ),
        [stream("default", "side", "zero_grad() returns") + ": holds"],
    ),
    "within one backward there is no such place": (
        "call backward 0 0; @hook w b[0:4] side; @autograd rw b[0:4] default",
        [stream("default", "side", "autograd goes on") + ": holds"],
    ),
    # Before the return only one of two writers had started.
    "of edges that order the pair the one that leaves least is reported": (
        """
        call wait 0; w b[0:4] side; return; call zero_grad 0; w c[0:4] side;
        @optimizer r b[0:4] default; @optimizer r c[0:4] default
        """,
        [stream("default", "side", "optimizer goes on") + ": holds"],
    ),
    "one writer and several readers are distinguished": (
        "w b[0:4] default; @one r b[0:4] side; @two r b[0:4] third",
        [
            stream("side", "default", "one") + some(1, 2),
            stream("third", "default", "two") + ": holds",
        ],
    ),
}


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
    assert first.remedy is not None
    assert second.remedy is not None
    assert (len(first.remedy.edges), len(second.remedy.edges)) == (4, 1)


def test_a_disorder_that_no_few_edges_end_has_no_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncverify.judge.ordering.remedies._MAX_EDGES", 0)
    (disorder,) = disorders(
        traces("w b[0:4] side; r b[0:4] default; free b default; w x[0:4] default"),
        "stream",
    )
    assert disorder.remedy is None
    assert [type(found) for found in disorder.found] == [Race, EarlyFree]
    assert disorder.semantics == "stream"


def test_on_the_host_nothing_is_asked_for_that_only_streams_lack() -> None:
    """Work that the host itself runs is in order, on each current stream."""
    program = """
        w b[0:4] side; @launch reduce n c[0:4] default>gloo;
        @gather gather m c[0:4] b[0:4] default>gloo
    """
    (disorder,) = disorders(traces(program), "host")
    assert disorder.semantics == "host"
    assert str(disorder.remedy) == work("default", "gather")


def test_on_the_host_the_return_is_as_good_where_only_streams_want_more() -> None:
    program = """
        call wait 0; @launch reduce n c[0:4] default>gloo; return;
        w b[0:4] side; @launch reduce m d[0:4] side>gloo;
        @use r c[0:4] default; @use r b[0:4] default
    """
    ends = {"stream": "use", "host": "wait() returns"}
    for semantics in ("stream", "host"):
        (remedy,) = remedies(traces(program), semantics)
        assert remedy == work("default", ends[semantics])


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
            ranks = applied(disorder.remedy.edges, ranks)
        judged = judge_orderings(ranks, case.semantics)
        assert not judged.races, case.name
        assert not judged.early_frees, case.name


def applied(edges: Sequence[Edge], ranks: Traces) -> Traces:
    for edge in edges:
        ranks = edge.applied(ranks)
    return ranks
