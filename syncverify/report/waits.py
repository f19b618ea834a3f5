"""The answers about waits as text, JSON and page: a table by line, a bound, and a verdict."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from syncverify.explain.waits import exposed_time
from syncverify.explain.waits.answers import (
    NEED_WORDS,
    Answer,
    AnsweredWaits,
    PlayedSubject,
    WhyUndecided,
)
from syncverify.plain_text import counted
from syncverify.report.account import Account
from syncverify.trace.sync_points import CALLS

COLUMNS: Final = ("line", "call", "word", "without it")
_LEAST_MICROSECONDS: Final = 0.05  # shown with one digit
_REASONS: Final[dict[WhyUndecided, str]] = {
    "": "",
    "never ran": "no scenario ran it",
    "schedules": "some scenario has more classes of schedules than were played",
    "time limit": "the time limit came first",
    "not simulated": "the simulated machine refuses a play without it",
    "process lost": "a process that played without it was lost, for a reason that may be another",
}


def cells_of(answer: Answer) -> tuple[str, str, str, str]:
    """Return the cells of one answer, one for each of `COLUMNS`."""
    line = f"{answer.point.line}\n{answer.code}"
    return line, CALLS[answer.point.kind], answer.word, _without(answer)


def _without(answer: Answer) -> str:
    """Say what comes of a play without a wait; of a harm, first what a reader can see."""
    if answer.word == "superfluous":
        holds = f"holds in {counted(answer.num_scenarios, 'scenario')}"
        if answer.point.kind == "reference":
            return f"{holds}; the memory can go back after its last use"
        saved = answer.exposed_microseconds
        if saved < _LEAST_MICROSECONDS:
            return f"{holds}; no step ends sooner on this link"
        return f"{holds}; a step ends up to {saved:.1f} us sooner"
    if (harm := answer.harm) is None:
        return _REASONS[answer.reason]
    where = "" if harm.is_of_model else " in a play without the call"
    broken = f"breaks {harm.property} ({harm.cause}){where}"
    if harm.outcome:
        return f"{harm.outcome}; {broken}"
    return f"{broken}; no play shows a wrong gradient"


def bound_lines(waits: AnsweredWaits) -> Iterator[str]:
    """Yield the bound of the word `superfluous`, and the machine of the exposed times."""
    for each in waits.subjects:
        name = f" for {each.name}" if len(waits.subjects) > 1 else ""
        limit = f"up to {counted(waits.max_ranks, 'rank')} with seed {waits.seed}"
        more = f", and {each.num_drawn:,} drawn on {limit}" if each.num_drawn else ""
        yield f"bound{name}: all {each.num_in_scope:,} scenarios of {waits.scope}{more}"
        first = f"syncverify replay {each.wrong[0]} {each.name}" if each.wrong else ""
        num_wrong = len(each.wrong)
        numbers = {
            "refused by the subject, as its contract allows": each.num_refused,
            "left out, which the simulated machine refuses": each.num_not_simulated,
            f"left out, which break with all waits; the first: {first}": num_wrong,
        }
        for words, number in numbers.items():
            if number:
                yield f"  {counted(number, 'scenario')} of them {words}"
    if len(waits.with_word("superfluous")) > 1:
        yield (
            "one wait was taken out at a time: remove one superfluous wait, and run this "
            "command again"
        )
    link = waits.link
    yield (
        f"times: a link of {link.latency_microseconds:g} us and "
        f"{link.gigabytes_per_second:g} GB/s, {exposed_time.OPERATOR_MICROSECONDS:g} us an operator, "
        f"{exposed_time.HOST_MICROSECONDS:g} us to queue it"
    )


def verdict(waits: AnsweredWaits) -> str:
    """Return the last line: how many points have each word."""
    counts = Counter(each.word for each in waits.answers)
    words = ", ".join(f"{counts[word]} {word}" for word in NEED_WORDS)
    never = sum(each.reason == "never ran" for each in waits.answers)
    if never:
        words += f" ({never} that no scenario ran)"
    return f"{counted(len(waits.answers), 'WAIT').upper()} of {waits.names}: {words}"


_FIRST_WRONG: Final = 3  # tokens: hundreds are pages of text


def account_of(waits: AnsweredWaits) -> Account:
    """Return the account of waits: none of them is a violation."""
    # Green says that nothing is to do: a superfluous wait is to be removed.
    bound = {"scope": str(waits.scope), "ranks": waits.max_ranks, "seed": waits.seed}
    all_needed = len(waits.with_word("needed")) == len(waits.answers)
    return Account(
        subject=waits.names,
        verdict=verdict(waits),
        is_right=all_needed or None,
        remarks=[*bound_lines(waits)],
        facts={
            **{word: len(waits.with_word(word)) for word in NEED_WORDS},
            "subjects": [*map(_subject, waits.subjects)],
            "bound": bound,
            "link": asdict(waits.link),
            "waits": [*map(_answer, waits.answers)],
        },
    )


def _subject(subject: PlayedSubject) -> dict[str, Any]:
    return {
        "name": subject.name,
        "scenarios": subject.num_in_scope,
        "drawn": subject.num_drawn,
        "refused": subject.num_refused,
        "not_simulated": subject.num_not_simulated,
        "wrong": len(subject.wrong),
        "first_wrong": [*subject.wrong[:_FIRST_WRONG]],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "kind": answer.point.kind,
        "path": answer.point.line.path,
        "line": answer.point.line.number,
        "function": answer.point.line.function,
        "code": answer.code,
        "word": answer.word,
        "scenarios": answer.num_scenarios,
        "exposed_microseconds": round(answer.exposed_microseconds, 3),
        "reason": answer.reason,
        "harm": answer.harm and asdict(answer.harm),
    }


def drawn(waits: AnsweredWaits) -> dict[str, Any]:
    """Return the table of a page."""
    return {
        "violations": [],
        "waits": {
            "columns": [*COLUMNS],
            "num_superfluous": len(waits.with_word("superfluous")),
            "rows": [
                {
                    "place": str(each.point.line),
                    "code": each.code,
                    "cells": [*cells_of(each)[1:]],
                    "word": each.word,
                }
                for each in waits.answers
            ],
        },
    }
