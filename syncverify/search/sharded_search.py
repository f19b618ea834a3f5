"""A search in shards, by one or several processes, for one report.

The process that merges hears those that play. It saves each violation when it hears of it, and
shrinks each violation once, after all shards.

Note [Merged in the order of shards]
    Of two violations of one identity the earlier one counts, and of equal memory the first. So
    a result is merged when all shards before it are. Those that end early wait for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from syncverify.playing.packed_subject import pack_subject
from syncverify.processes.calls import Crew, run_here
from syncverify.progress import Progress
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.settings import Settings
from syncverify.scenario.space import Space
from syncverify.search.campaign_file import CampaignFile, DoneShards
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.result import SearchResult
from syncverify.search.search import PlaceMet, PlacesMet
from syncverify.search.shards import (
    Shard,
    ShardPlayed,
    Shards,
    ViolationMet,
    play_apart,
    play_shard,
)
from syncverify.subjects.subject import Subject


def explore_in_shards(
    subject: Subject,
    settings: Settings,
    progress: Progress[FoundViolation],
    crew: Crew,
    campaign: Campaign | None,
) -> tuple[SearchResult, PlacesMet]:
    """Return the merged result of all shards of a search, and where violations were met.

    Args:
        subject: The synchronizer.
        settings: Settings of the whole search.
        progress: Receives the progress of all shards together.
        crew: Plays the shards.
        campaign: The shards that earlier calls have played; None keeps nothing.

    Returns:
        The result, in which nothing is shrunk, and the place of each violation.
    """
    exploration = _Exploration.of(subject, settings, progress, campaign)
    done = exploration.play(crew, time.monotonic())
    is_whole = done.num_merged == len(exploration.shards) or settings.stop_at_first
    if campaign is not None and is_whole:
        done.result.campaign = campaign.file.path
    own = subject.capabilities
    places = {
        identity: PlaceMet(exploration.shards[each.number].drawing(own), each.draws)
        for identity, each in done.places.items()
    }
    return done.result, places


@dataclass(frozen=True, slots=True)
class Campaign:
    """A search that may be interrupted, and that the same command continues.

    Attributes:
        file: The file in which it is kept, which no other process uses.
        done: The shards that earlier calls have played.
    """

    file: CampaignFile
    done: DoneShards


@contextmanager
def campaign_of(
    subject: Subject, settings: Settings, saved: Callable[[], frozenset[str]]
) -> Iterator[Campaign | None]:
    """Yield the shards that earlier calls have played; None for a search that keeps nothing.

    `saved` returns the tokens of violations that are saved now.
    """
    if not settings.can_go_on:
        yield None
        return
    with CampaignFile.of(subject, settings) as file:
        new = replace(_new(subject, settings), saved_before=saved())
        yield Campaign(file, file.read() or new)


@dataclass(slots=True)
class _Exploration:
    """The shards of a search, and the results of those that were played.

    Attributes:
        shards: All shards.
        counts: Receives the progress of all shards.
        done: Results of shards that were played.
        file: File of the campaign; None without one.
        begun: Results of shards that ended early, which the next call plays as a whole.
    """

    subject: Subject
    shards: Shards
    counts: JointProgress
    done: DoneShards
    file: CampaignFile | None
    begun: dict[int, SearchResult] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        subject: Subject,
        settings: Settings,
        progress: Progress[FoundViolation],
        campaign: Campaign | None,
    ) -> Self:
        """Return a search, or the rest of it."""
        file = None if campaign is None else campaign.file
        done = _new(subject, settings) if campaign is None else campaign.done
        counts = JointProgress(progress, done.num_examples)
        met = done.with_all({}).result.met
        for identity in met.reported():
            counts.hear(ViolationMet(met.own[identity]))
        shards = Shards(pack_subject(subject), settings.backend, settings)
        return cls(subject, shards, counts, done, file)

    def play(self, crew: Crew, started: float) -> DoneShards:
        """Play the shards that are left, and return all that is known."""
        limit = self.shards.settings.time_limit_seconds
        is_enough = self.shards.settings.stop_at_first

        def stops() -> bool:
            if self.file is not None:
                self.file.write(self.done)
            is_late = limit is not None and time.monotonic() > started + limit
            return is_late or (is_enough and self.counts.has_met)

        play = self._play_here if crew is run_here else play_apart
        results = crew(play, self._left(), hear=self.counts.hear, stops=stops)
        try:
            with closing(results):
                for shard, result in results:
                    if result is not None:
                        self._take(shard, result, is_cut=stops())
        finally:
            if self.file is not None:
                self.file.write(self.done, at_once=True)
        return self.done.with_all(self.begun)

    def _left(self) -> Iterator[Shard]:
        """Yield the shards to play; none after a shard that ended the search."""
        for number in range(self.done.num_merged, len(self.shards)):
            if any(each.stopped for each in self.begun.values()):
                return
            if not self.done.has(number):
                yield self.shards[number]

    def _play_here(self, shard: Shard) -> SearchResult | None:
        return play_shard(shard, self.subject)

    def _take(self, shard: Shard, result: SearchResult, *, is_cut: bool) -> None:
        """Take the result of a shard in."""
        self.counts.note_end(shard.number)
        is_short = result.num_examples < shard.settings.examples
        if result.stopped or (is_cut and is_short):
            self.begun[shard.number] = result
            return
        self.done = self.done.with_shard(shard.number, result)


def _new(subject: Subject, settings: Settings) -> DoneShards:
    """Return the result of a search before its first scenario."""
    coverage = Coverage(Space(subject.capabilities, settings.ranks))
    return DoneShards(SearchResult(0, 0.0, coverage, []))


class JointProgress:
    """The progress of all shards together, after some scenarios before."""

    def __init__(self, progress: Progress[FoundViolation], num_played: int) -> None:
        self._progress, self._num_played = progress, num_played
        # A shard that is played anew, as its process was lost, counts once.
        self._by_shard: dict[int, int] = {}
        self._met: set[Identity] = set()

    @property
    def has_met(self) -> bool:
        """Tell whether a shard has met a violation."""
        return bool(self._met)

    def hear(self, word: object) -> None:
        """Hand on the progress of a shard."""
        match word:
            case ViolationMet(violation):
                self._met.add(violation.violation.identity)
                self._progress.found(violation)
            case ShardPlayed(number, num_examples):
                self._num_played += num_examples - self._by_shard.get(number, 0)
                self._by_shard[number] = num_examples
                self._progress.played(self._num_played, len(self._met))

    def note_end(self, number: int) -> None:
        """Note that no more comes from a shard."""
        self._by_shard.pop(number, None)
