"""The answers about waits as text: cells of a table by line, and a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from syncverify.plain_text import counted
from syncverify.trace.sync_points import CALLS
from syncverify.waits.answers import (
    NEED_WORDS,
    Answer,
    AnsweredWaits,
    PlayedSubject,
    WhyUndecided,
)
from syncverify.waits.exposed_time import HOST_MICROSECONDS, OPERATOR_MICROSECONDS

COLUMNS: Final = ("line", "call", "word", "without it")
_REASONS: Final[dict[WhyUndecided, str]] = {
    "": "",
    "never ran": "no scenario ran it",
    "schedules": "some scenario has more classes of schedules than were played",
    "time limit": "the time limit came first",
    "not simulated": "the simulated machine refuses a play without it",
    "process lost": "a process that played without it was lost, and no second one in the same way",
}


def cells_of(answer: Answer) -> tuple[str, str, str, str]:
    """Return the cells of one answer, one for each of `COLUMNS`."""
    line = f"{answer.point.line}\n{answer.code}"
    return line, CALLS[answer.point.kind], answer.word, _without(answer)


def _without(answer: Answer) -> str:
    harm = answer.harm
    if answer.word == "superfluous":
        holds = f"holds in {counted(answer.num_scenarios, 'scenario')}"
        if answer.point.kind == "reference":
            return f"{holds}; the memory can go back after its last use"
        return f"{holds}; a step ends up to {answer.exposed_microseconds:.1f} us sooner"
    if harm is None:
        return _REASONS[answer.reason]
    shown = harm.outcome or "no wrong number was shown"
    way = "" if harm.is_of_model else ", as a play without the call shows"
    return f"{harm.property} ({harm.cause}){way}: {shown}"


def bound_lines(waits: AnsweredWaits) -> Iterator[str]:
    """Yield the bound of the word `superfluous`, and the machine of the exposed times."""
    for each in waits.subjects:
        name = f" for {each.name}" if len(waits.subjects) > 1 else ""
        yield f"bound{name}: all {each.num_in_scope:,} scenarios of {waits.scope}" + (
            f", and {each.num_drawn:,} drawn on up to {counted(waits.max_ranks, 'rank')} "
            f"with seed {waits.seed}"
            if each.num_drawn
            else ""
        )
        yield from _without_verdict(each)
    link = waits.link
    yield (
        f"times: a link of {link.latency_microseconds:g} us and "
        f"{link.gigabytes_per_second:g} GB/s, {OPERATOR_MICROSECONDS:g} us an operator, "
        f"{HOST_MICROSECONDS:g} us to queue it"
    )


def _without_verdict(subject: PlayedSubject) -> Iterator[str]:
    """Yield how many of the scenarios say less than others, or nothing."""
    if subject.num_refused:
        number = counted(subject.num_refused, "scenario")
        yield f"  {number} of them refused by the subject, as its contract allows"
    if subject.num_not_simulated:
        number = counted(subject.num_not_simulated, "scenario")
        yield f"  {number} of them left out, which the simulated machine refuses"
    if subject.wrong:
        yield (
            f"  {counted(len(subject.wrong), 'scenario')} of them left out, which break with "
            f"all waits; the first: syncverify replay {subject.wrong[0]} {subject.name}"
        )


def verdict(waits: AnsweredWaits) -> str:
    """Return the last line: how many points have each word."""
    counts = Counter(each.word for each in waits.answers)
    words = ", ".join(f"{counts[word]} {word}" for word in NEED_WORDS)
    return f"{counted(len(waits.answers), 'WAIT').upper()} of {waits.names}: {words}"
