"""The judge of orderings finds exactly what plain reachability finds.

The suite tries a few hundred random traces; ten thousand come with
`pytest --hypothesis-profile=ten-thousand tests/syncverify/judge/ordering`.
"""

from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import assume, event, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from syncverify.judge.ordering.races import judge_orderings
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    StorageFreed,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.source_lines import NoLine
from tests.syncverify.judge.ordering.micro_traces import AT, launch, region
from tests.syncverify.judge.ordering.reachability import CyclicError, Reachability

STREAMS = ("default", "side", "third")
LANES = ("default", "side", "nccl", "other nccl")
REGIONS = tuple(
    region(text)
    for text in (
        "b[0:16]", "b[0:8]", "b[8:16]", "b[4:12]", "b[0+2x2@8]", "b[2+2x2@8]", "b[0:0]",
        "c[0:8]", "c[4:6]", "c[0+1x4@2]", "d[0:4]",
    )
)  # fmt: skip

# Kind of record, rank, and three numbers with a meaning that depends on the kind.
Word = tuple[str, int, int, int, int]
small = st.integers(0, 11)
KINDS = (
    "read", "write", "write", "update", "mark", "until", "host", "wait",
    "launch", "launch", "await", "await", "free", "swap",
)  # fmt: skip
words = st.tuples(st.sampled_from(KINDS), st.integers(0, 2), small, small, small)
sentences = st.lists(words, min_size=4, max_size=40)


@dataclass
class Writer:
    """Turns words into the traces of some ranks."""

    num_ranks: int

    def __post_init__(self) -> None:
        self.traces: list[list[TraceRecord]] = [[] for _ in range(self.num_ranks)]
        self.num_launches = 0

    def add(self, word: Word) -> None:
        kind, rank, one, two, three = word
        events = self.traces[rank % self.num_ranks]
        stream = STREAMS[one % len(STREAMS)]
        mark = two % 4
        touched = (REGIONS[two % len(REGIONS)],)
        match kind:
            case "read":
                events.append(Access(AT, stream, kind, touched, (), NoLine.UNKNOWN))
            case "write":
                events.append(Access(AT, stream, kind, (), touched, NoLine.UNKNOWN))
            case "update":
                read = (REGIONS[three % len(REGIONS)],)
                events.append(Access(AT, stream, kind, read, touched, NoLine.UNKNOWN))
            case "mark":
                events.append(Mark(AT, stream, mark, NoLine.UNKNOWN))
            case "until":
                events.append(StreamWait(AT, stream, mark, NoLine.UNKNOWN))
            case "host":
                events.append(HostWait(AT, mark, NoLine.UNKNOWN))
            case "wait":
                fresh = 100 + len(events)
                events.append(
                    Mark(AT, STREAMS[two % len(STREAMS)], fresh, NoLine.UNKNOWN)
                )
                events.append(StreamWait(AT, stream, fresh, NoLine.UNKNOWN))
            case "launch":
                self._launch(one, two, three)
            case "await":
                wait = CollectiveWait(AT, self._ranks(two), three, stream)
                events.append(wait)
            case "free":
                storage = REGIONS[two % len(REGIONS)].storage
                recorded = STREAMS[: three % 3]
                events.append(StorageFreed(AT, storage, stream, recorded))
            case "swap":
                events[-2:] = events[:-3:-1]

    def _ranks(self, choice: int) -> tuple[int, ...]:
        everyone = tuple(range(self.num_ranks))
        return everyone if choice % 3 else everyone[:2]

    def _launch(self, one: int, two: int, three: int) -> None:
        issued = launch(
            "c", ("b[0:1]",), ("b[0:1]",), "default", self._ranks(two), NoLine.UNKNOWN
        )
        for rank in issued.ranks:
            stream = STREAMS[(one + rank) % len(STREAMS)]
            lane = LANES[three % len(LANES)]
            self.traces[rank].append(
                replace(
                    issued,
                    sequence=self.num_launches,
                    regions=(REGIONS[(two + rank) % len(REGIONS)],),
                    written=(REGIONS[(three + one) % len(REGIONS)],),
                    stream=stream,
                    communication_stream=stream if three > 9 else lane,
                )
            )
        self.num_launches += 1


def without_use_after_free(events: list[TraceRecord]) -> list[TraceRecord]:
    """Leave out uses of freed storages: a number never comes back in a real trace."""
    gone: set[int] = set()
    kept: list[TraceRecord] = []
    for entry in events:
        if isinstance(entry, StorageFreed):
            gone.add(entry.storage)
        elif isinstance(entry, Access):
            entry = replace(
                entry,
                reads=tuple(r for r in entry.reads if r.storage not in gone),
                writes=tuple(r for r in entry.writes if r.storage not in gone),
            )
        elif isinstance(entry, CollectiveLaunch):
            entry = replace(
                entry,
                regions=tuple(r for r in entry.regions if r.storage not in gone),
                written=tuple(r for r in entry.written if r.storage not in gone),
            )
        kept.append(entry)
    return kept


def stream_of(entry: TraceRecord) -> str:
    if isinstance(entry, CollectiveLaunch):
        return entry.communication_stream
    assert isinstance(entry, Access)
    return entry.stream


def assert_equal_to_reachability(
    ranks: list[list[TraceRecord]], semantics: Literal["stream", "host"]
) -> None:
    graph = Reachability(ranks, semantics)
    try:
        graph.refuse_cycles()
    except CyclicError:
        assume(False)
    found = judge_orderings(ranks, semantics)
    races = {(race.rank, race.first_index, race.second_index) for race in found.races}
    expected = graph.races()
    assert races <= expected
    assert {(rank, second) for rank, _, second in races} == {
        (rank, second) for rank, _, second in expected
    }
    for race in found.races:
        assert race.first is ranks[race.rank][race.first_index]
        assert race.second is ranks[race.rank][race.second_index]
    frees = {
        (early.rank, early.use_index, early.free_index)
        for early in (*found.early_frees, *found.harmless_frees)
    }
    expected_frees = graph.early_frees()
    assert frees <= expected_frees
    assert {(rank, stream_of(ranks[rank][use]), free) for rank, use, free in frees} == {
        (rank, stream_of(ranks[rank][use]), free) for rank, use, free in expected_frees
    }
    event(f"races: {bool(expected)}, early frees: {bool(expected_frees)}")


@pytest.mark.long
@hypothesis_settings(
    max_examples=max(300, hypothesis_settings.default.max_examples)  # type: ignore[union-attr]  # conftest loads one
)
@given(
    sentences,
    st.integers(1, 3),
    st.tuples(*[st.integers(0, 3)] * 3),
    st.sampled_from(["stream", "stream", "host"]),
)
def test_judge_equals_reachability(
    sentence: list[Word],
    num_ranks: int,
    cuts: tuple[int, int, int],
    semantics: Literal["stream", "host"],
) -> None:
    writer = Writer(num_ranks)
    for word in sentence:
        writer.add(word)
    ranks = [without_use_after_free(events) for events in writer.traces]
    # Some traces end early.
    ranks = [
        events[: len(events) - 2 * cut] if cut > 1 else events
        for events, cut in zip(ranks, cuts, strict=False)
    ]
    assert_equal_to_reachability(ranks, semantics)
