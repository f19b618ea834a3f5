"""The verdict on the dumps of a job: who met whom, in which order, and who never came.

The entries become traces, and the properties of the judge look at them. Entries alone do not
tell the end of a job: a dump is a moment of it.

Note [What a dump leaves out]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
- A recorder keeps its last entries. A group is judged from the first collective that the
  dumps of all of its ranks have.
- Dumps of ranks are written at different moments. A collective that has ended somewhere had all
  of its ranks, so a dump without it is an older one.
- The reduction and the root are not recorded, so nothing is said about them.
- Messages are counted from the start of the job, so they are judged in whole dumps only.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from typing_extensions import override

from syncverify.judge.dumps.reading import Dump, Entry
from syncverify.judge.evidence import Disagreement, Event
from syncverify.judge.properties.launch_order import launch_order_agrees
from syncverify.judge.properties.matching import collectives_match_across_ranks
from syncverify.judge.properties.registry import judge_traced
from syncverify.judge.traced import TracedRun
from syncverify.judge.violation import Violation
from syncverify.plain_text import named
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.records import (
    CollectiveKey,
    CollectiveLaunch,
    Moment,
    SubjectCall,
)
from syncverify.trace.run import RankRun, Run

# Names of those properties of any program that entries tell of.
_JUDGED: Final = (collectives_match_across_ranks, launch_order_agrees)
PROPERTIES: Final = frozenset(each.__name__ for each in _JUDGED)
# All operations of a coalesced group have one sequence number.
_MOST_COALESCED: Final = 2**20


@dataclass(frozen=True, slots=True)
class RecordedMoment(Moment):
    """The point of a job at which an entry was made: its number, for nothing else is known."""

    record: int = 0

    @override
    def __str__(self) -> str:
        return f"record {self.record}"


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """The verdict on the dumps of a job."""

    violations: tuple[Violation, ...]
    num_collectives: int  # collectives and messages that were judged
    # Of all collectives in the dumps: those to which each rank came, and that had not ended.
    num_unfinished: int
    absent: tuple[int, ...]  # ranks of groups that left no dump


def judge_dumps(dumps: Mapping[int, Dump]) -> JobVerdict:
    """Judge the dumps of a job, by rank."""
    meetings = _Meetings(dumps)
    judged = meetings.judged()
    ranks = tuple(RankRun() for _ in range(max(meetings.members) + 1))
    for rank, launches in judged.items():
        # A rank with a dump has played, even without an entry.
        ranks[rank].trace = [SubjectCall(Moment("bind", 0)), *launches]
    run = Run("flight recorder", ranks, carries_data=False)
    return JobVerdict(
        (*judge_traced(TracedRun(run), PROPERTIES), *meetings.without_dump()),
        len({launch.key for own in judged.values() for launch in own}),
        meetings.num_unfinished,
        tuple(sorted(meetings.members - dumps.keys())),
    )


def _launches(
    dump: Dump, *, with_messages: bool
) -> Iterator[tuple[Entry, CollectiveLaunch]]:
    counts = Counter[tuple[object, ...]]()
    for entry in dump.entries:
        operation, ranks = _ends(entry, dump.groups[entry.group])
        is_message = operation in POINT_TO_POINT
        if operation == "coalesced" or (is_message and not with_messages):
            continue
        number = 0 if is_message else entry.sequence
        counts[entry.group, ranks, number] += 1
        launch = CollectiveLaunch(
            moment=RecordedMoment("backward", 0, None, entry.record),
            ranks=ranks,
            sequence=number * _MOST_COALESCED + counts[entry.group, ranks, number],
            operation=operation,
            reduce_op="",
            dtype=entry.dtype,
            numel=entry.numel,
            regions=(),
            parameters=(),
            source=entry.source,
            communicator=entry.group,
        )
        yield entry, launch


def _ends(entry: Entry, group: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return the operation and its ranks: of a message `send 0->1` or `recv 1<-0`, two."""
    operation, _, ends = entry.operation.partition(" ")
    for arrow, step in (("->", 1), ("<-", -1)):
        numbers = ends.split(arrow)[::step]
        if len(numbers) == 2 and all(n.isdecimal() and n.isascii() for n in numbers):
            places = [int(n) for n in numbers]
            if max(places) < len(group):
                return operation, tuple(group[place] for place in places)
    return operation, group


class _Meetings:
    """Collectives of all dumps, and where they are known to be complete."""

    def __init__(self, dumps: Mapping[int, Dump]) -> None:
        groups = [ranks for dump in dumps.values() for ranks in dump.groups.values()]
        # Global ranks of all groups, and those of the dumps.
        self.members = {*dumps, *itertools.chain(*groups)}
        self._dumps = dumps
        is_whole = not any(dump.is_cut for dump in dumps.values())
        self._launches = {rank: list[CollectiveLaunch]() for rank in dumps}
        self._came: defaultdict[CollectiveKey, set[int]] = defaultdict(set)
        self._done: set[CollectiveKey] = set()
        for rank, dump in dumps.items():
            for entry, launch in _launches(dump, with_messages=is_whole):
                self._launches[rank].append(launch)
                self._came[launch.key].add(rank)
                if entry.is_done:
                    self._done.add(launch.key)

    @property
    def num_unfinished(self) -> int:
        """Count the collectives to which all ranks came, and which had not ended anywhere."""
        came = self._came.items()
        return sum(e not in self._done and ranks >= {*e.ranks} for e, ranks in came)

    def judged(self) -> dict[int, list[CollectiveLaunch]]:
        """Return the launches that dumps can tell of, numbered without gaps.

        See Note [What a dump leaves out].
        """
        starts = self._first_common()
        kept = sorted(
            key
            for key, came in self._came.items()
            if key.sequence >= starts.get(key[:2], 0)
            and not (key in self._done and {*key.ranks} & self._dumps.keys() - came)
        )
        groups = itertools.groupby(kept, key=lambda key: key[:2])
        places = {key: place for _, own in groups for place, key in enumerate(own)}
        return {
            rank: [replace(e, sequence=places[e.key]) for e in own if e.key in places]
            for rank, own in self._launches.items()
        }

    def without_dump(self) -> Iterator[Violation]:
        """Find the first collective that waits for ranks which left no dump."""
        for rank, own in self._launches.items():
            for launch in own:
                silent = sorted({*launch.ranks} - self._dumps.keys())
                if silent and launch.key not in self._done:
                    group = f"{named('rank', silent)} of the group"
                    summary = f"rank {rank} waits in {launch}, and {group} left no dump"
                    events = (Event(f"rank {rank}: {launch.moment}"),)
                    yield Violation(
                        collectives_match_across_ranks.__name__,
                        "rank_left_no_dump",
                        summary,
                        tuple(silent),
                        evidence=Disagreement(named=(launch.source,), events=events),
                    )
                    return

    def _first_common(self) -> dict[tuple[str, tuple[int, ...]], float]:
        """Return by group the number from which on no recorder had dropped a collective."""
        starts: dict[tuple[str, tuple[int, ...]], float] = {}
        for rank, dump in self._dumps.items():
            if dump.is_cut:
                # A group without an entry tells nothing.
                own = dict.fromkeys(dump.groups.items(), math.inf)
                own |= {e.key[:2]: e.sequence for e in self._launches[rank][::-1]}
                for place, first in own.items():
                    starts[place] = max(starts.get(place, 0), first)
        return starts
