"""Legal orders that invert a race or early free. Positions count from 0."""

import pytest

from syncverify.judge.ordering.happens_before import Semantics
from syncverify.judge.ordering.inversions import Inversion, inversions
from syncverify.judge.ordering.races import judge_orderings
from tests.syncverify.judge.ordering.micro_traces import traces

TWO = "reduce n b[0:8] default>nccl; reduce m b[0:8] default>other"


def orders(program: str, semantics: Semantics = "stream") -> list[Inversion]:
    ranks = traces(program)
    (race,) = judge_orderings(ranks, semantics).races
    return list(inversions(race, ranks, semantics))


def order(late: set[int], results: set[int], until: int, rank: int = 0) -> Inversion:
    return Inversion(rank, frozenset(late), frozenset(results), until)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("w b[0:8] default; w c[0:8] default; r b[0:8] side; w d[0:8] default",
            [order({1}, {0}, 3), order({0, 1}, set(), 3)]),
        # Earlier work, and work that is not ordered after the first use, runs in time.
        ("w a[0:8] default; w b[0:8] default; w c[0:8] side; r b[0:8] side",
            [order(set(), {1}, 4), order({1}, set(), 4)]),
        # A collective may find the first use late until it ends.
        (
            ("w b[0:8] default; w c[0:8] default; reduce n b[0:8] side>nccl; await m side; "
            "w e[0:8] default; await n side; await n default; w d[0:8] default"),
            [order({1}, {0}, 3), order({0, 1}, set(), 3), order({1, 4}, {0}, 6),
            order({0, 1, 4}, set(), 6)]),
        # Of two collectives either may end last.
        (f"{TWO}; await n default; w e[0:8] default; await m default",
            [order(set(), {1}, 3), order(set(), {0}, 2), order({0}, set(), 2),
            order({3}, {0}, 5), order({0, 3}, set(), 5)]),
        (TWO, [order(set(), {0}, 2), order({0}, set(), 2)]),
        ("reduce n b[0:8] default>nccl; w b[0:8] default; await n default",
            [order(set(), {0}, 2), order({0}, set(), 2)]),
    ],
)  # fmt: skip
def test_the_first_use_runs_late_or_writes_late_and_takes_along_what_follows_it(
    program: str, expected: list[Inversion]
) -> None:
    assert orders(program) == expected


@pytest.mark.parametrize("after_the_wait", ["host m", "mark o default; host o; host m"])
def test_nothing_is_late_once_the_host_has_waited_for_it(after_the_wait: str) -> None:
    begun = "w b[0:8] default; mark m default; reduce n b[0:8] side>nccl"
    assert len(orders(f"{begun}; await n side; {after_the_wait}")) == 4
    # It has waited before that.
    assert len(orders(f"{begun}; {after_the_wait}; await n side")) == 2


def test_memory_has_other_contents_when_a_use_runs_after_its_free() -> None:
    program = (
        "w c[0:8] side; w b[0:8] side; w d[0:8] side; free b default; w e[0:8] side;"
        "w f[0:8] default"
    )
    (early,) = judge_orderings(traces(program)).early_frees
    assert list(inversions(early, traces(program))) == [
        Inversion(0, frozenset({1, 2}), frozenset(), 3, overwritten=ord("b"))
    ]


def test_on_gloo_whatever_follows_a_wait_follows_the_collective() -> None:
    program = f"{TWO}; await m side; w e[0:8] default; await n side"
    assert orders(program, "host")[0] == order({3}, {1}, 5)
    assert orders(program)[0] == order(set(), {1}, 5)
