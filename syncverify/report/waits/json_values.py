"""The answers about waits as plain JSON values."""

from __future__ import annotations

from typing import Any, Final

from syncverify.waits.answers import Answer, AnsweredWaits, PlayedSubject

_FIRST_WRONG: Final = 3  # tokens: hundreds are pages of text


def waits_json(waits: AnsweredWaits) -> dict[str, Any]:
    """Return plain JSON values; the format is versioned."""
    return {
        "version": 1,
        "subjects": [*map(_subject, waits.subjects)],
        "bound": {
            "scope": str(waits.scope),
            "ranks": waits.max_ranks,
            "seed": waits.seed,
        },
        "link": {
            "latency_microseconds": waits.link.latency_microseconds,
            "gigabytes_per_second": waits.link.gigabytes_per_second,
        },
        "waits": [*map(_answer, waits.answers)],
    }


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
    harm = answer.harm
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
        "harm": None
        if harm is None
        else {
            "property": harm.property,
            "cause": harm.cause,
            "token": harm.token,
            "in_the_model": harm.is_of_model,
            "outcome": harm.outcome,
            "expected": _listed(harm.expected),
            "observed": _listed(harm.observed),
        },
    }


def _listed(values: tuple[float, ...] | None) -> list[str] | None:
    # Text, as JSON has no infinity.
    return None if values is None else [f"{value:g}" for value in values]
