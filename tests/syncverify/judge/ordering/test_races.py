"""Pairs that are reported, with their indices and regions."""

from dataclasses import replace

import pytest

from syncverify.judge.ordering.races import judge_orderings
from syncverify.trace.records import CollectiveLaunch
from tests.syncverify.judge.ordering.micro_traces import region, traces


def pairs(*programs: str) -> list[tuple[int, int, int]]:
    found = judge_orderings(traces(*programs))
    return [(race.rank, race.first_index, race.second_index) for race in found.races]


def test_race_names_both_events_and_the_bytes_in_common() -> None:
    ranks = traces("w b[0:8] default", "w b[0:8] default; r b[4:16] side")
    (race,) = judge_orderings(ranks).races
    assert (race.rank, race.first_index, race.second_index) == (1, 0, 1)
    assert race.first is ranks[1][0]
    assert race.second is ranks[1][1]
    assert race.region == region("b[4:8]")


def test_early_free_names_the_last_use_and_the_free() -> None:
    ranks = traces("r b[0:8] side; r b[8:16] side; free b default; w c[0:8] default")
    (early,) = judge_orderings(ranks).early_frees
    assert (early.rank, early.use_index, early.free_index) == (0, 1, 2)
    assert early.use is ranks[0][1]
    assert early.freed is ranks[0][2]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        # A write hides earlier accesses from a use that races with both.
        ("w b[0:8] one; w b[0:8] one; r b[0:8] two", [(0, 1, 2)]),
        ("r b[0:8] one; w b[0:8] one; w b[0:8] two", [(0, 1, 2)]),
        # A racy write hides nothing that it is not ordered after.
        ("r b[0:8] one; w b[0:8] two; wait three two; w b[0:8] three", [(0, 0, 1), (0, 0, 4)]),
        ("w b[0:8] one; w b[0:8] two; wait three two; w b[0:8] three", [(0, 0, 1), (0, 0, 4)]),
        # A write to a part leaves the rest as it was.
        ("w b[0:8] one; wait two one; w b[0:4] two; r b[4:8] three; r b[0:4] three",
            [(0, 0, 4), (0, 0, 5), (0, 3, 5)]),
        # Uses noted for one lane are found when a second lane comes.
        ("r b[0:8] one; w b[8:16] one; r b[0:16] two", [(0, 1, 2)]),
        ("r b[0:8] one; w b[8:16] one; w b[0:16] two", [(0, 0, 2), (0, 1, 2)]),
    ],
)  # fmt: skip
def test_unordered_accesses_of_one_byte_race(
    program: str, expected: list[tuple[int, int, int]]
) -> None:
    assert pairs(program) == expected


@pytest.mark.parametrize(
    "then", ["", "; wait side default; w c[0:8] side; w d[0:8] side"]
)
def test_pool_that_gives_nothing_out_before_the_last_use_is_over_does_no_harm(
    then: str,
) -> None:
    found = judge_orderings(traces("w b[0:8] default; free b side" + then))
    assert found.early_frees == ()
    ((use, freed),) = [(e.use_index, e.free_index) for e in found.harmless_frees]
    assert (use, freed) == (0, 1)


@pytest.mark.parametrize(
    ("operation", "root", "num_races"),
    [
        ("all_reduce", None, 0),
        ("broadcast", 0, 1),
        ("broadcast", 1, 0),
        ("scatter", 0, 1),
        ("reduce", 0, 0),
        ("reduce", 1, 1),
        ("gather", 1, 1),
        ("send", None, 1),
        ("recv", None, 0),
    ],
)
def test_a_rank_comes_after_the_ranks_that_it_receives_from(
    operation: str, root: int | None, num_races: int
) -> None:
    """The write of rank 0 is before the start of rank 1, by another collective."""
    played = traces(
        "w b[0:8] side; reduce a x[0:8] side>one; reduce c y[0:8] default>two;"
        "await c default; r b[0:8] default",
        "reduce a x[0:8] side>one; await a default; reduce c y[0:8] default>two",
    )
    other = {"send": "recv", "recv": "send"}
    changed = [
        [
            replace(
                each,
                operation=other.get(operation, operation) if rank else operation,
                root=root,
            )
            if isinstance(each, CollectiveLaunch) and each.sequence == ord("c")
            else each
            for each in trace
        ]
        for rank, trace in enumerate(played)
    ]
    found = judge_orderings(changed).races
    assert [each.rank for each in found] == [0] * num_races
