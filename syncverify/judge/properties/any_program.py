"""The properties of any program: they read what ranks did, and no scenario."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from syncverify.judge.ordering.races import EarlyFree, Race, Unordered
from syncverify.judge.ordering.remedies import Disorder
from syncverify.judge.properties.disagreements import skipped_by
from syncverify.judge.properties.groups_made import groups_that_differ
from syncverify.judge.properties.judgement import merge
from syncverify.judge.properties.launch_order import launch_order_agrees
from syncverify.judge.properties.lifecycle import (
    early_end,
    every_rank_finishes,
    every_wait_completes,
)
from syncverify.judge.properties.matching import (
    collectives_match_across_ranks,
    mismatches,
)
from syncverify.judge.properties.ordering import memory_outlives_its_streams
from syncverify.judge.properties.ordering_words import evidence, summary
from syncverify.judge.properties.unwritten import memory_is_written_before_it_is_read
from syncverify.judge.traced import Traced
from syncverify.judge.violation import Violation
from syncverify.trace.run import FaultKind

_ENDS: Final[Collection[FaultKind]] = ("raised", "process_died")
_STALLS: Final[Collection[FaultKind]] = ("deadlock", "never_returns", "step_bound")


def judge_traced(
    traced: Traced, names: Collection[str] | None = None
) -> list[Violation]:
    """Judge what ranks did by the properties of any program, or by some of them."""
    return [
        violation
        for property_, find in _FINDERS.items()
        if names is None or property_.__name__ in names
        for violation in find(traced)
    ]


def streams_order_shared_memory(traced: Traced) -> Iterator[Violation]:
    """Two uses of the same bytes, one of which writes, run in one order.

    For all ranks: streams, events, waits for collectives and waits of the host order each
    write of memory with all other uses of it.

    Catches: a `wait()` that is forgotten or comes late, a stream that does not wait for
    another one. Says nothing of memory of the host, or of other processes.
    """
    found = [each for each in traced.disorders if isinstance(each.found[0], Race)]
    name = streams_order_shared_memory.__name__
    yield from _of_lines(traced, found, name, "race")


def _early_frees(traced: Traced) -> Iterator[Violation]:
    found = [each for each in traced.disorders if isinstance(each.found[0], EarlyFree)]
    name = memory_outlives_its_streams.__name__
    yield from _of_lines(traced, found, name, "freed_in_use")


def _of_lines(
    traced: Traced, disorders: list[Disorder], name: str, cause: str
) -> Iterator[Violation]:
    """Yield one violation for each pair of lines, or for a line and the pool of the memory.

    Ranks that run one program share lines.
    """
    by_lines = dict[object, list[Disorder]]()
    for disorder in disorders:
        by_lines.setdefault(_lines(disorder.found[0]), []).append(disorder)
    for disorder, *others in by_lines.values():
        shown = disorder.found[0]
        pairs = [pair for each in (disorder, *others) for pair in each.found]
        yield Violation(
            property=name,
            cause=cause,
            summary=summary(shown, disorder, ()),
            ranks=tuple(sorted({pair.rank for pair in pairs})),
            evidence=evidence(shown, disorder, (), traced.run.ranks[shown.rank].trace),
        )


def _lines(found: Unordered) -> tuple[object, ...]:
    if isinstance(found, Race):
        return found.first.source, found.second.source
    return found.use.source, found.freed.stream


def _ends(traced: Traced) -> Iterable[Violation]:
    """No rank ends early, by an error or by an exit with a code."""
    return merge(every_rank_finishes.__name__, early_end(traced.run, _ENDS))


def _stalls(traced: Traced) -> Iterable[Violation]:
    if any(groups_that_differ(traced.run)):
        return ()  # ranks that name one group in two ways do not meet
    return merge(every_wait_completes.__name__, early_end(traced.run, _STALLS))


def _mismatches(traced: Traced) -> Iterable[Violation]:
    found = mismatches(traced.run, lambda met, _two: skipped_by(traced.run, met))
    return merge(collectives_match_across_ranks.__name__, found)


def _launch_orders(traced: Traced) -> Iterable[Violation]:
    return merge(launch_order_agrees.__name__, launch_order_agrees(traced))


def _unwritten_reads(traced: Traced) -> Iterable[Violation]:
    found = memory_is_written_before_it_is_read(traced)
    return merge(memory_is_written_before_it_is_read.__name__, found)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


# By the function whose name is that of the property.
_FINDERS: Final[
    Mapping[Callable[..., Any], Callable[[Traced], Iterable[Violation]]]
] = {
    every_rank_finishes: _ends,
    every_wait_completes: _stalls,
    collectives_match_across_ranks: _mismatches,
    launch_order_agrees: _launch_orders,
    streams_order_shared_memory: streams_order_shared_memory,
    memory_outlives_its_streams: _early_frees,
    memory_is_written_before_it_is_read: _unwritten_reads,
}
# The guarantee of each property, by its name: the first line of the finder, or else of the
# property. Words about a scenario fit no other program.
STATEMENTS: Final[Mapping[str, str]] = {
    property_.__name__: _first_line(find.__doc__ or inspect.getdoc(property_) or "")
    for property_, find in _FINDERS.items()
}
