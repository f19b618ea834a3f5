"""The shards of a search: parts that a process plays by itself, and that are merged in order.

Processes share no state. The shards of a search follow from its settings, and a shard has its
own seed, which follows from the seed of the search and its number. So the merged result is the
same for any order in which shards end, and for any number of workers of a cluster. The setting
`jobs` decides how large shards are, so another number of jobs gives another result.

An exhaustive search plays every scenario of a small scope, with a schedule of each class: a proof
within a bound. Its shards are parts of a list.
"""

import functools
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import torch
from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.playing.choice import open_backend
from syncverify.playing.messages import unpack_subject
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.processes.calls import is_to_stop, tell_caller
from syncverify.progress import SilentProgress
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import ScheduleChoice
from syncverify.scenario.settings import DEFAULTS, Settings
from syncverify.scenario.small_scope import SmallScope
from syncverify.search.drawing import Drawing, EndedError, Listed, named_seed
from syncverify.search.exploration import explore
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge
from syncverify.search.result import SearchResult
from syncverify.subjects.subject import Subject

# Scenarios of a shard. A large one is played anew where a process is lost. Each shard plays
# some scenarios twice (`Exploration.play`) and puts probes into the subject anew.
_LEAST_OF_SCOPE: Final = 100
_LEAST, _MOST = 50, 250
_LEAST_SHARDS: Final = 40
_MOST_OF_A_JOB: Final = 1000
_MOST_CLASSES: Final = 1000  # of the schedules of one scenario


@functools.lru_cache(maxsize=2)
def scenarios_within(
    scope: SmallScope, capabilities: Capabilities
) -> tuple[Scenario, ...]:
    """Return each scenario of a contract within a scope; raise `UsageError` if there is none."""
    listed = tuple(scope.scenarios(capabilities))
    if not listed:
        raise UsageError(f"the contract leaves no scenario within {scope}")
    return listed


def exhaustive_settings(settings: Settings, capabilities: Capabilities) -> Settings:
    """Return the settings that play all of a scope; raise `UsageError` for contrary ones."""
    if settings.backend != "sim":
        raise UsageError(
            f"an exhaustive search plays all schedules, which takes the backend sim, and not "
            f"{settings.backend}"
        )
    schedules = settings.schedules
    if schedules == DEFAULTS["schedules"]:
        schedules = f"all:{_MOST_CLASSES}"
    if ScheduleChoice.parse(schedules).mode != "all":
        raise UsageError(
            f"an exhaustive search plays all schedules: expected all or all:N, not {schedules!r}"
        )
    scope = SmallScope.parse(settings.scope)
    return replace(
        settings,
        schedules=schedules,
        ranks=scope.ranks,
        examples=len(scenarios_within(scope, capabilities)),
    )


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a search, with its own seed and number of scenarios in its settings."""

    number: int
    subject: bytes
    settings: Settings
    first: int  # number of scenarios of the shards before

    def scenarios(self, capabilities: Capabilities) -> Drawing | Listed:
        """Return the scenarios of the shard within a contract."""
        settings = self.settings
        if not settings.exhaustive:
            return Drawing.of(capabilities, settings)
        listed = scenarios_within(SmallScope.parse(settings.scope), capabilities)
        return Listed(listed[self.first :][: settings.examples])

    def drawing(self, capabilities: Capabilities) -> Drawing:
        """Return the random sequence with which a violation of the shard is made small."""
        settings = self.settings
        if settings.exhaustive:  # nothing random has led to a scenario of a scope
            settings = replace(settings, examples=1)
        return Drawing.of(capabilities, settings)


def size_of_shards(settings: Settings) -> int:
    """Return the number of scenarios of each shard but the last one."""
    if settings.cluster is None and not settings.exhaustive:
        return min(-(-settings.examples // settings.jobs), _MOST_OF_A_JOB)
    least = _LEAST_OF_SCOPE if settings.exhaustive else _LEAST
    return max(least, min(_MOST, settings.examples // _LEAST_SHARDS))


def num_shards(settings: Settings) -> int:
    """Return the number of shards of a search."""
    return -(-settings.examples // size_of_shards(settings))


def shard_of(number: int, subject: bytes, settings: Settings) -> Shard:
    """Return one shard of a search; a search of many is cut as it goes on."""
    size = size_of_shards(settings)
    first, seed = number * size, settings.random_seed
    # An exhaustive search lists all scenarios; random priorities follow them.
    if not settings.exhaustive:
        seed = named_seed(seed, number, 8)
    count = min(size, settings.examples - first)
    own = replace(settings, examples=count, seed=seed, jobs=1, cluster=None)
    # The process that merges keeps violations.
    own = replace(own, database=None, progress=None)
    return Shard(number, subject, own, first)


@dataclass(frozen=True, slots=True)
class ShardPlayed:
    """Progress of a shard: the number of its scenarios that were played."""

    number: int
    num_examples: int


@dataclass(frozen=True, slots=True)
class _ToldProgress(SilentProgress):
    """The progress of one shard, which is told to the process that counts for all."""

    number: int

    @override
    def played(self, num_examples: int, num_violations: int) -> None:
        """Tell that one more scenario was played; end the shard if it is to end."""
        tell_caller(lambda: ShardPlayed(self.number, num_examples))
        if is_to_stop():
            raise EndedError

    @override
    def found(self, violation: FoundViolation) -> None:
        """Tell a violation that the shard had not met before."""
        tell_caller(lambda: violation)


def play_shard(shard: Shard, subject: Subject) -> SearchResult | None:
    """Return the result of a shard, or None if it was told to end before it began."""
    if is_to_stop():
        return None
    settings, scenarios = shard.settings, shard.scenarios(subject.capabilities)
    choice = ScheduleChoice.parse(settings.schedules)
    with closing(open_backend(settings.backend, subject)) as backend:
        judge = Judge(subject, backend, choice, settings.random_seed)
        return explore(judge, scenarios, settings, _ToldProgress(shard.number))


def play_apart(shard: Shard) -> SearchResult | None:
    """Play a shard in a process that does nothing else."""
    torch.set_num_threads(1)
    show_warnings_once()
    return play_shard(shard, unpack_subject(shard.subject))
