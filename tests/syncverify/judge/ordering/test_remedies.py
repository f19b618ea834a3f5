"""The remedy names the wait that was taken away."""

from collections.abc import Sequence

import pytest

from syncverify.judge.ordering.happens_before import Semantics
from syncverify.judge.ordering.missing_waits import Edge
from syncverify.judge.ordering.races import EarlyFree, Race, judge_orderings
from syncverify.judge.ordering.remedies import disorders
from syncverify.trace.run import Traces
from tests.syncverify.judge.ordering.labelled import CASES
from tests.syncverify.judge.ordering.micro_traces import labelled, traces
from tests.syncverify.judge.ordering.steps import STEPS, without


def remedies(ranks: Traces, semantics: Semantics = "stream") -> list[str]:
    return [str(disorder.remedy) for disorder in disorders(ranks, semantics)]


def test_nothing_is_missing_from_the_whole() -> None:
    assert disorders(traces(STEPS, STEPS)) == []
    assert disorders(traces(STEPS, without("join"))) != []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fork", "insert `side.wait_stream(default)` before launch: holds"),
        ("join", "insert `default.wait_stream(side)` before wait() returns: holds"),
        (
            "await",
            (
                "insert `work.wait()` of the all_reduce launched at launch, while `side` is "
                "current, before divide: holds"
            ),
        ),
    ],
)
def test_a_wait_that_is_taken_away_is_asked_for(line: str, expected: str) -> None:
    """One line less in every step of every rank: one disorder, one edge."""
    program = without(line)
    assert program != STEPS
    assert remedies(traces(program, program)) == [expected]
    assert remedies(traces(STEPS, program)) == [expected]


def test_two_waits_that_are_missing_are_two_disorders() -> None:
    program = without("fork", without("join"))
    assert remedies(traces(program)) == [
        "insert `side.wait_stream(default)` before launch: orders 16 of 26 such pairs; the others need another wait",
        "insert `default.wait_stream(side)` before wait() returns: holds",
    ]


def test_pairs_keep_their_places_though_a_remedy_before_adds_records() -> None:
    ranks = traces(without("fork", without("join")))
    fork, join = disorders(ranks)
    races = [*fork.found, *join.found]
    assert {*map(type, races)} == {Race}
    for found in races:
        assert isinstance(found, Race)
        assert ranks[found.rank][found.first_index] is found.first
        assert ranks[found.rank][found.second_index] is found.second


def test_a_stream_that_has_the_result_is_waited_for_rather_than_the_work() -> None:
    program = without("join", without("divide"))
    assert remedies(traces(program)) == [
        "insert `default.wait_stream(side)` before wait() returns: holds"
    ]


def test_a_stream_that_has_more_than_the_result_is_waited_for() -> None:
    """It knows of the work by another stream, and waits for it itself only later."""
    program = """
        reduce n b[0:4] default>nccl; await n side; w c[0:4] third; wait third side;
        @use r b[0:4] default; @use r c[0:4] default; await n third
    """
    assert remedies(traces(program)) == [
        "insert `default.wait_stream(third)` before use: holds"
    ]


def test_of_edges_that_do_as_much_the_one_in_the_subject_is_reported() -> None:
    program = without("join") + "w q[0:4] one; @other w q[0:4] two"
    assert remedies(traces(program)) == [
        "insert `default.wait_stream(side)` before wait() returns: orders 10 of 11 such pairs; the others need another wait",
        "insert `two.wait_stream(one)` before other: holds",
    ]


def test_an_edge_that_orders_other_pairs_only_is_no_remedy() -> None:
    program = """
        call wait 0; return; w b[0:4] default; @one r b[0:4] side;
        call wait 1; w c[0:4] default; w d[0:4] default; return;
        @two r c[0:4] side; @three r d[0:4] side
    """
    assert remedies(traces(program)) == [
        "insert `side.wait_stream(default)` before one: orders 1 of 3 such pairs; the others need another wait",
        "insert `side.wait_stream(default)` before wait() returns: holds",
    ]


def test_two_writers_need_two_edges() -> None:
    program = "w b[0:4] one; w b[4:8] two; @launch reduce c b[0:8] side>nccl"
    assert remedies(traces(program)) == [
        (
            "insert `side.wait_stream(two)` before launch and insert "
            "`side.wait_stream(one)` before launch: holds"
        )
    ]


def test_a_use_outside_of_any_call_is_waited_for_at_the_use() -> None:
    program = "w b[0:4] default; @copy r b[0:4] side"
    assert remedies(traces(program)) == [
        "insert `side.wait_stream(default)` before copy: holds"
    ]


def test_work_whose_stream_has_no_name_is_waited_for_itself() -> None:
    program = "@launch reduce c b[0:4] default>nccl; @refill w b[0:4] default"
    assert remedies(traces(program)) == [
        (
            "insert `work.wait()` of the all_reduce launched at launch, while `default` is "
            "current, before refill: holds"
        )
    ]


def test_memory_of_a_named_stream_is_recorded() -> None:
    program = (
        "w b[0:4] default; wait side default; @copy r b[0:4] side; free b default;"
    )
    program += "w c[0:4] default"
    assert remedies(traces(program)) == [
        (
            "insert `tensor.record_stream(side)` after copy, or hold a reference until its "
            "stream waited for `side`: holds"
        )
    ]


def test_memory_in_flight_is_held_until_the_work_is_done() -> None:
    program = "@launch reduce c b[0:4] default>nccl; free b default;"
    program += "w x[0:4] default; await c default"
    assert remedies(traces(program)) == [
        (
            "insert `work.wait()` of the all_reduce launched at launch, while `default` is "
            "current, before the last reference to its memory goes away: holds"
        )
    ]


def test_a_wait_of_backward_is_placed_where_the_subject_can_add_it() -> None:
    """No line can be inserted into autograd; the call before it is the subject's."""
    program = (
        "call zero_grad 0; @zero w b[0:4] side; return;"
        "call backward 1 0; @autograd rw b[0:4] default"
    )
    assert remedies(traces(program)) == [
        "insert `default.wait_stream(side)` before zero_grad() returns: holds"
    ]


def test_within_one_backward_there_is_no_such_place() -> None:
    program = "call backward 0 0; @hook w b[0:4] side; @autograd rw b[0:4] default"
    assert remedies(traces(program)) == [
        "insert `default.wait_stream(side)` before autograd goes on: holds"
    ]


def test_on_the_host_only_work_can_be_waited_for() -> None:
    program = "@launch reduce c b[0:4] default>gloo; @refill w b[0:4] default"
    assert remedies(traces(program), "host") == [
        (
            "insert `work.wait()` of the all_reduce launched at launch, while `default` is "
            "current, before refill: holds"
        )
    ]


def test_of_edges_that_order_the_pair_the_one_that_leaves_least_is_reported() -> None:
    """Before the return only one of two writers had started."""
    program = """
        call wait 0; w b[0:4] side; return; call zero_grad 0; w c[0:4] side;
        @optimizer r b[0:4] default; @optimizer r c[0:4] default
    """
    assert remedies(traces(program)) == [
        "insert `default.wait_stream(side)` before optimizer goes on: holds"
    ]


def test_one_writer_and_several_readers_are_distinguished() -> None:
    program = "w b[0:4] default; @one r b[0:4] side; @two r b[0:4] third"
    assert remedies(traces(program)) == [
        "insert `side.wait_stream(default)` before one: orders 1 of 2 such pairs; the others need another wait",
        "insert `third.wait_stream(default)` before two: holds",
    ]


def test_several_uses_of_freed_memory_are_distinguished_and_from_races() -> None:
    program = """
        @one r b[0:4] side; @two r b[0:4] third; free b default;
        w c[0:4] default; @three r c[0:4] side
    """
    assert [remedy.rpartition(": ")[0] for remedy in remedies(traces(program))] == [
        "insert `side.wait_stream(default)` before three",
        (
            "insert `tensor.record_stream(side)` after one, or hold a reference until "
            "its stream waited for `side`"
        ),
        (
            "insert `tensor.record_stream(third)` after two, or hold a reference until "
            "its stream waited for `third`"
        ),
    ]


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


def test_a_disorder_has_all_that_its_remedy_removes_and_the_rules_it_breaks() -> None:
    program = "w b[0:4] side; w c[0:4] side; @one r b[0:4] default; r c[0:4] default"
    (disorder,) = disorders(traces(program))
    assert [found.first.source for found in disorder.found] == [
        labelled("line 0"),
        labelled("line 1"),
    ]
    assert disorder.semantics == "stream"


def test_on_the_host_nothing_is_asked_for_that_only_streams_lack() -> None:
    """Work that the host itself runs is in order, on each current stream."""
    program = """
        w b[0:4] side; @launch reduce n c[0:4] default>gloo;
        @gather gather m c[0:4] b[0:4] default>gloo
    """
    (disorder,) = disorders(traces(program), "host")
    assert disorder.semantics == "host"
    assert str(disorder.remedy) == (
        "insert `work.wait()` of the all_reduce launched at launch, while `default` is "
        "current, before gather: holds"
    )


def test_on_the_host_the_return_is_as_good_where_only_streams_want_more() -> None:
    program = """
        call wait 0; @launch reduce n c[0:4] default>gloo; return;
        w b[0:4] side; @launch reduce m d[0:4] side>gloo;
        @use r c[0:4] default; @use r b[0:4] default
    """
    ends = {"stream": "before use", "host": "before wait() returns"}
    for semantics in ("stream", "host"):
        (remedy,) = remedies(traces(program), semantics)
        assert remedy == (
            "insert `work.wait()` of the all_reduce launched at launch, while `default` "
            f"is current, {ends[semantics]}: holds"
        )


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
