"""Legal orders that invert a race or early free. Positions count from 0."""

import pytest

from syncverify.judge.ordering.happens_before import Semantics
from syncverify.judge.ordering.inversions import Inversion, inversions, ordered_after
from syncverify.judge.ordering.races import judge_orderings
from tests.syncverify.judge.ordering.micro_traces import traces


def orders(*programs: str, semantics: Semantics = "stream") -> list[Inversion]:
    """Return the orders for the only race there is."""
    ranks = traces(*programs)
    (race,) = judge_orderings(ranks, semantics).races
    return list(inversions(race, ranks, semantics))


def order(late: set[int], results: set[int], until: int, rank: int = 0) -> Inversion:
    return Inversion(rank, frozenset(late), frozenset(results), until)


def test_the_first_use_runs_late_or_writes_late_and_takes_along_what_follows_it() -> (
    None
):
    found = orders(
        "w b[0:8] default; w c[0:8] default; r b[0:8] side; w d[0:8] default"
    )
    assert found == [order({1}, {0}, 3), order({0, 1}, set(), 3)]


def test_what_came_before_or_is_not_ordered_after_it_runs_in_time() -> None:
    found = orders("w a[0:8] default; w b[0:8] default; w c[0:8] side; r b[0:8] side")
    assert found == [order(set(), {1}, 4), order({1}, set(), 4)]


def test_an_inversion_names_the_rank_that_has_the_race() -> None:
    bad = "w b[0:8] default; w c[0:8] default; r b[0:8] side"
    good = "w b[0:8] default; mark m default; host m; r b[0:8] side"
    (race,) = judge_orderings(traces(good, bad)).races
    found = list(inversions(race, traces(good, bad)))
    assert found == [order({1}, {0}, 3, rank=1), order({0, 1}, set(), 3, rank=1)]


def test_a_collective_may_find_the_first_use_late_until_it_ends() -> None:
    found = orders(
        "w b[0:8] default; w c[0:8] default; reduce n b[0:8] side>nccl; await m side; "
        "w e[0:8] default; await n side; await n default; w d[0:8] default"
    )
    assert found == [
        order({1}, {0}, 3),
        order({0, 1}, set(), 3),
        order({1, 4}, {0}, 6),
        order({0, 1, 4}, set(), 6),
    ]


@pytest.mark.parametrize(
    ("after_the_wait", "num_orders"),
    [
        ("host m", 4),  # the host has waited when the collective is over
        ("w c[0:8] third; host m", 4),
        ("mark o default; host o; host m", 4),  # the earliest counts, not the last
    ],
)
def test_nothing_is_late_once_the_host_has_waited_for_it(
    after_the_wait: str, num_orders: int
) -> None:
    begun = "w b[0:8] default; mark m default; reduce n b[0:8] side>nccl"
    assert len(orders(f"{begun}; await n side; {after_the_wait}")) == num_orders
    # It has waited before that.
    assert len(orders(f"{begun}; {after_the_wait}; await n side")) == 2


def test_a_host_that_waits_for_something_else_leaves_it_late() -> None:
    begun = "w a[0:8] third; mark m third; w b[0:8] default; reduce n b[0:8] side>nccl"
    assert len(orders(f"{begun}; host m; await n side")) == 4
    # Earlier host waits do not matter, nor do those of another rank.
    assert len(orders(f"host m; {begun}; await n side")) == 4
    other = f"mark m default; host m; {begun.replace('default', 'side')}; await n side"
    (race, *_) = judge_orderings(traces(f"{begun}; await n side", other)).races
    found = inversions(race, traces(f"{begun}; await n side", other))
    assert len(list(found)) == 4


def test_memory_has_other_contents_when_a_use_runs_after_its_free() -> None:
    program = (
        "w c[0:8] side; w b[0:8] side; w d[0:8] side; free b default; w e[0:8] side;"
        "w f[0:8] default"
    )
    (early,) = judge_orderings(traces(program)).early_frees
    assert list(inversions(early, traces(program))) == [
        Inversion(0, frozenset({1, 2}), frozenset(), 3, overwritten=ord("b"))
    ]


TWO = "reduce n b[0:8] default>nccl; reduce m b[0:8] default>other"


def test_of_two_collectives_either_may_end_last() -> None:
    found = orders(f"{TWO}; await n default; w e[0:8] default; await m default")
    assert found == [
        order(set(), {1}, 3),
        order(set(), {0}, 2),
        order({0}, set(), 2),
        order({3}, {0}, 5),
        order({0, 3}, set(), 5),
    ]


def test_on_gloo_whatever_follows_a_wait_follows_the_collective() -> None:
    program = f"{TWO}; await m side; w e[0:8] default; await n side"
    assert orders(program, semantics="host")[0] == order({3}, {1}, 5)
    assert orders(program)[0] == order(set(), {1}, 5)
    program = f"{TWO}; await n side; w e[0:8] default; await m side"
    assert orders(program, semantics="host")[-1] == order({0, 3}, set(), 5)
    assert orders(program)[-1] == order({0}, set(), 5)


def test_the_second_collective_is_not_late_once_the_host_has_waited_for_it() -> None:
    """It waits for the stream that holds the result."""
    waited = "await m default; mark o default; host o"
    assert orders(f"{TWO}; {waited}; await n side")[0] == order(set(), {0}, 2)
    waited_later = "await m default; mark o default; await n side; host o"
    assert orders(f"{TWO}; {waited_later}")[0] == order(set(), {1}, 5)


def test_a_collective_that_nobody_waits_for_has_no_end() -> None:
    assert orders(TWO) == [order(set(), {0}, 2), order({0}, set(), 2)]


def test_only_two_collectives_end_in_two_orders() -> None:
    found = orders("reduce n b[0:8] default>nccl; w b[0:8] default; await n default")
    assert found == [order(set(), {0}, 2), order({0}, set(), 2)]


def test_what_follows_an_event_is_reported_for_one_rank_and_one_position() -> None:
    ranks = traces(
        "w b[0:8] default; w c[0:8] default; w d[0:8] side", "w b[0:8] default"
    )
    assert ordered_after(0, 0, ranks).until(9) == {0, 1}
    assert ordered_after(0, 1, ranks).until(9) == {1}
    assert ordered_after(1, 0, ranks).until(9) == {0}
    assert ordered_after(0, 0, ranks, "host").until(9) == {0, 1, 2}
