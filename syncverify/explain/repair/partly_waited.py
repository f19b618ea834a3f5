"""Lines that wait for some of the collectives of one line, and not for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from syncverify.explain.repair.larger_scenarios import with_one_parameter_more
from syncverify.judge.ordering.races import Race
from syncverify.plain_text import counted
from syncverify.playing.sim import SimBackend
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.search.found_violation import FoundViolation, LeftOut
from syncverify.subjects.subject import Subject
from syncverify.trace.records import (
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    TraceRecord,
)
from syncverify.trace.source_lines import CodeLine, Origin, with_code


def partly_waited(
    found: FoundViolation, subject: Subject, backend: SimBackend
) -> tuple[LeftOut, ...]:
    """Return the lines that wait for others of the collectives that a race is about.

    A smallest scenario may launch one collective alone. So a scenario with one more parameter
    is played as well.

    Returns:
        The lines, each with its numbers of collectives. None where all collectives of the
        launching line are waited for, or no one is.
    """
    race = found.violation.evidence.unordered
    if not (isinstance(race, Race) and isinstance(race.first, CollectiveLaunch)):
        return ()
    more = with_one_parameter_more(found.scenario, subject.capabilities)
    for scenario in (found.scenario, *more):
        run = backend.run(scenario, subject, DEFAULT_SCHEDULE)
        parameters = counted(len(scenario.parameters), "parameter")
        waits = _waits_for_some(run.ranks[race.rank].trace, race.first.source)
        if lines := [
            LeftOut(line, f"{why}, in a scenario with {parameters}")
            for line, why in waits
        ]:
            return tuple(lines)
    return ()


def _waits_for_some(
    trace: Sequence[TraceRecord], source: Origin
) -> Iterator[tuple[CodeLine, str]]:
    """Yield each line that waits for collectives of a line, of which others have no wait."""
    launched = {
        record.key
        for record in trace
        if isinstance(record, CollectiveLaunch) and record.source == source
    }
    waited = defaultdict[Origin, set[CollectiveKey]](set)
    for record in trace:
        if isinstance(record, CollectiveWait) and record.key in launched:
            waited[record.source].add(record.key)
    if launched == set[CollectiveKey]().union(*waited.values()):
        return
    for origin, keys in waited.items():
        for line in with_code([origin]):
            yield (
                line,
                f"waits for {len(keys)} of the {len(launched)} collectives of {source}",
            )
