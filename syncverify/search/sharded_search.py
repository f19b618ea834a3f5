"""A search in shards, by one or several processes, for one report.

The process that merges hears those that play. It saves each violation when it hears of it, and
shrinks each violation once, after all shards.

Note [Merged in the order of shards]
    Of two violations of one identity the earlier one counts, and of equal memory the first. So
    a result is merged when all shards before it are. Those that end early wait for them.
"""

import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from syncverify.playing.messages import pack_subject
from syncverify.processes.calls import Crew, run_here, run_in_processes
from syncverify.progress import Progress
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.settings import Settings
from syncverify.scenario.space import Space
from syncverify.search.campaign_file import CampaignFile, DoneShards
from syncverify.search.cluster.crew import run_on_cluster
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.result import SearchResult
from syncverify.search.shards import (
    Shard,
    ShardPlayed,
    num_shards,
    play_apart,
    play_shard,
    shard_of,
)
from syncverify.subjects.subject import Subject

# By violation, the sequence in which it was met, and the number of decisions of each schedule that
# was drawn there, by the digest of its scenario.
PlacesMet = Mapping[Identity, tuple[Drawing, Mapping[bytes, int]]]
_LOCAL: Final = re.compile(r"local(?::([1-9][0-9]{0,2}))?")


def crew_of(settings: Settings) -> Crew | None:
    """Return the crew that plays the shards of a search; None for a search without shards."""
    if settings.cluster is not None or settings.jobs > 1:
        return crew_at(settings.cluster, settings.jobs)
    return run_here if settings.exhaustive else None


def crew_at(place: str | None, jobs: int) -> Crew:
    """Return processes of this machine, as many as `jobs` or `local:N` says, or workers elsewhere."""
    local = _LOCAL.fullmatch(place or "")
    if place is not None and not local:
        return functools.partial(run_on_cluster, place=place)
    if local:
        jobs = int(local[1] or os.cpu_count() or 1)
    return functools.partial(run_in_processes, jobs=jobs)


@contextmanager
def campaign_of(
    subject: Subject, settings: Settings, saved: Callable[[], frozenset[str]]
) -> Iterator[CampaignFile | None]:
    """Yield the shards that earlier calls have played; None for a search that keeps nothing.

    `saved` returns the tokens of violations that are saved now.
    """
    if not settings.can_go_on:
        yield None
        return
    with CampaignFile.of(subject, settings) as file:
        new = replace(_new(subject, settings), saved_before=saved())
        file.done = file.read() or new
        yield file


def explore_in_shards(
    subject: Subject,
    settings: Settings,
    progress: Progress[FoundViolation],
    crew: Crew,
    campaign: CampaignFile | None,
) -> tuple[SearchResult, PlacesMet]:
    """Return the merged result of all shards, and where each violation was met first.

    `campaign` has the shards that earlier calls have played. Nothing is shrunk.
    """
    done = _new(subject, settings) if campaign is None else campaign.done
    exploration = _Exploration(subject, settings, progress, done, campaign)
    done = exploration.play(crew)
    is_whole = done.num_merged == num_shards(settings) or settings.stop_at_first
    if campaign is not None and is_whole:
        done.result.campaign = campaign.path
    return done.result, {
        identity: (exploration.shard(number).drawing(subject.capabilities), draws)
        for identity, (number, draws) in done.places.items()
    }


@dataclass(slots=True)
class _Exploration:
    """The shards of a search: their progress together, and the results of those that were played."""

    subject: Subject
    settings: Settings
    progress: Progress[FoundViolation]
    done: DoneShards
    file: CampaignFile | None
    packed: bytes = field(init=False)
    num_played: int = field(init=False)
    # Number of scenarios of shards that play; one that is played anew, as its process was lost,
    # counts once.
    by_shard: dict[int, int] = field(default_factory=dict)
    met: set[Identity] = field(default_factory=set)
    # Results of shards that ended early, which the next call plays as a whole.
    begun: dict[int, SearchResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with what earlier calls have met."""
        self.packed = pack_subject(self.subject)
        known = self.done.with_all({}).result
        self.num_played = known.num_examples
        for identity in known.met.reported():
            self.hear(known.met.own[identity])

    def play(self, crew: Crew) -> DoneShards:
        """Play the shards that are left, and return all that is known."""
        limit, started = self.settings.time_limit_seconds, time.monotonic()

        def stops() -> bool:
            if self.file is not None:
                self.file.write(self.done)
            is_late = limit is not None and time.monotonic() > started + limit
            return is_late or (self.settings.stop_at_first and bool(self.met))

        play = play_apart
        if crew is run_here:
            play = functools.partial(play_shard, subject=self.subject)
        results = crew(play, self._left(), hear=self.hear, stops=stops)
        try:
            with closing(results):
                for shard, result in results:
                    if result is not None:
                        self._take(shard, result, is_cut=stops())
        finally:
            if self.file is not None:
                self.file.write(self.done, at_once=True)
        return self.done.with_all(self.begun)

    def hear(self, word: object) -> None:
        """Hand on the progress of a shard."""
        match word:
            case FoundViolation():
                self.met.add(word.violation.identity)
                self.progress.found(word)
            case ShardPlayed(number, num_examples):
                self.num_played += num_examples - self.by_shard.get(number, 0)
                self.by_shard[number] = num_examples
                self.progress.played(self.num_played, len(self.met))

    def _left(self) -> Iterator[Shard]:
        """Yield the shards to play; none after a shard that ended the search."""
        for number in range(self.done.num_merged, num_shards(self.settings)):
            if any(each.stopped for each in self.begun.values()):
                return
            if not self.done.has(number):
                yield self.shard(number)

    def shard(self, number: int) -> Shard:
        """Return the shard of a number from 0."""
        return shard_of(number, self.packed, self.settings)

    def _take(self, shard: Shard, result: SearchResult, *, is_cut: bool) -> None:
        self.by_shard.pop(shard.number, None)
        is_short = result.num_examples < shard.settings.examples
        if result.stopped or (is_cut and is_short):
            self.begun[shard.number] = result
        else:
            self.done = self.done.with_shard(shard.number, result)


def _new(subject: Subject, settings: Settings) -> DoneShards:
    """Return the result of a search before its first scenario."""
    coverage = Coverage(Space(subject.capabilities, settings.ranks))
    return DoneShards(SearchResult(0, 0.0, coverage, []))
