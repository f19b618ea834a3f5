"""Pairs that are reported, with their indices and regions."""

import pickle
from dataclasses import replace
from typing import Any

import pytest

from syncverify.judge.evidence import Disordered
from syncverify.judge.ordering.races import (
    EarlyFree,
    Race,
    is_same_work,
    judge_orderings,
)
from syncverify.judge.violation import Violation
from syncverify.trace.records import Access, Moment, StorageFreed
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import NoLine, SourceLine
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
        (
            "r b[0:8] one; w b[0:8] two; wait three two; w b[0:8] three",
            [(0, 0, 1), (0, 0, 4)],
        ),
        (
            "w b[0:8] one; w b[0:8] two; wait three two; w b[0:8] three",
            [(0, 0, 1), (0, 0, 4)],
        ),
        # A write to a part leaves the rest as it was.
        (
            "w b[0:8] one; wait two one; w b[0:4] two; r b[4:8] three; r b[0:4] three",
            [(0, 0, 4), (0, 0, 5), (0, 3, 5)],
        ),
        # Uses noted for one lane are found when a second lane comes.
        ("r b[0:8] one; w b[8:16] one; r b[0:16] two", [(0, 1, 2)]),
        ("r b[0:8] one; w b[8:16] one; w b[0:16] two", [(0, 0, 2), (0, 1, 2)]),
    ],
)
def test_unordered_accesses_of_one_byte_race(
    program: str, expected: list[tuple[int, int, int]]
) -> None:
    assert pairs(program) == expected


def test_one_pair_of_events_is_one_race_however_much_they_share() -> None:
    first = (region("b[0:8]"), region("b[16:24]"), region("c[0:8]"))
    (event,) = traces("w b[0:1] default")[0]
    assert isinstance(event, Access)
    ranks = [
        [
            Access(event.moment, stream, "copy_", first, first, NoLine.UNKNOWN)
            for stream in ("default", "side")
        ]
    ]
    assert len(judge_orderings(ranks).races) == 1


def test_freed_memory_is_forgotten() -> None:
    """A number never comes back, so a trace that says otherwise is of no interest."""
    assert pairs("w b[0:8] default; free b default; w b[0:8] side") == []


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


def test_the_same_work_of_two_runs_is_known_by_its_lines_not_by_its_memory() -> None:
    use = Access(
        Moment("wait", 0),
        "side",
        "aten.add_",
        (),
        (),
        SourceLine("a.py", 1, "step"),
    )
    bytes_of_run, bytes_of_other = MemoryRegion(0, 0, 4), MemoryRegion(7, 8, 12)
    race = Race(0, 1, 2, use, replace(use, writes=(bytes_of_run,)), bytes_of_run)
    other = replace(race, rank=1, first_index=5, second=use, region=bytes_of_other)
    later = replace(race, second=replace(use, moment=Moment("wait", 1)))
    free = EarlyFree(0, 1, 2, use, StorageFreed(use.moment, 0, "side"))
    assert is_same_work(race, other)
    assert is_same_work(free, replace(free, use_index=3))
    assert not is_same_work(race, later)
    assert not is_same_work(race, free)
    assert not is_same_work(free, replace(free, freed=replace(free.freed, stream="a")))


def test_a_race_is_sent_with_its_violation_and_not_compared() -> None:
    use = Access(
        Moment("wait", 0),
        "side",
        "aten.add_",
        (),
        (),
        SourceLine("a.py", 1, "step"),
    )
    race = Race(0, 1, 2, use, use, MemoryRegion(0, 0, 4))
    texts: dict[str, Any] = {"memory": "", "remedy": "", "streams": (), "waits": ()}
    evidence = Disordered(unordered=race, **texts)
    violation = Violation("p", "c", "s", evidence=evidence)
    sent = pickle.loads(pickle.dumps(violation))
    assert is_same_work(sent.evidence.unordered, race)
    other = replace(evidence, unordered=replace(race, rank=1))
    assert violation == replace(violation, evidence=other)
