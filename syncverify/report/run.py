"""The account of a search: each violation with its scenario, its diagnosis and its token."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from syncverify.judge.evidence import FrozenGradient, WrongGradient
from syncverify.judge.properties.registry import STATEMENTS
from syncverify.replay_line import replay_line
from syncverify.report import text
from syncverify.report.account import Account, Explanation, titled
from syncverify.report.annotations import Annotation, annotations_of
from syncverify.report.evidence import (
    evidence_json,
    numbers_text,
    titled_events,
    witness_json,
    witness_lines,
)
from syncverify.report.hints import advice, certainty
from syncverify.report.observed import with_rating
from syncverify.report.report import Report
from syncverify.search.found_violation import FoundViolation, RelatedViolation
from syncverify.trace.source_lines import CodeLine

# Of each kind; more are a wall of text, and each is of one mistake.
_NUM_RELATED: Final = 3


def account_of(report: Report) -> Account:
    """Return the account of a search; the verdict of its text follows what was not tried."""
    explanations = [explanation_of(each, **report.names) for each in report.violations]
    wrong = report.beyond if report.has_failed and not explanations else ()
    notes = ["\n".join(text.wrong_in_full(wrong)).rstrip(), str(report.not_tried or "")]
    seed = {} if report.is_replay else {"seed": report.seed}
    return Account(
        subject=report.subject,
        verdict=text.verdict(report),
        is_right=None if report.verifies_nothing else not report.has_failed,
        explanations=explanations,
        notes=notes,
        facts={
            "backend": report.backend,
            "examples": report.examples,
            **seed,
            "contract": report.contract,
            "contract_choice": report.contract_choice,
            "seconds": round(report.seconds, 3),
            "coverage": report.coverage,
            **report.summary.to_json(),
            "schedules": {**report.schedules},
            "explored": list(report.explored),
            "beyond": [each.to_json() for each in report.beyond],
            "interrupted": report.is_interrupted,
            "lines": report.lines.to_json(),
            "not_tried": str(report.not_tried or ""),
            **({"bound": report.bound.to_json()} if report.bound else {}),
        },
    )


def annotations_of_run(report: Report) -> Iterator[Annotation]:
    """Yield an annotation for each violation, or for each other thing that fails a run."""
    yield from annotations_of(account_of(report))
    if report.has_failed and not report.violations:
        for feature in with_rating(report.beyond, "wrong"):
            yield Annotation(f"{feature.feature} is wrong", feature.summary)


def diagnosis(report: Report) -> str:
    """Describe every violation of a report, or the wrong features that fail it, to print."""
    if report.always_raises and len(report.violations) == 1:
        return "\n".join([*text.always_raised(report), "", text.verdict(report)])
    return account_of(report).text()


def explanation_of(
    entry: FoundViolation, *, subject: str, backend: str, contract: str = ""
) -> Explanation:
    """Return a violation as a report shows it; subject, backend, contract are for its replay line."""
    return Explanation.of(
        entry.violation,
        STATEMENTS,
        hint=advice(entry),
        token=entry.token,
        replay=replay_line(entry.token, subject, backend, contract),
        sections=_sections(entry),
        facts=_facts(entry),
    )


def _sections(entry: FoundViolation) -> list[list[str] | str]:
    violation, cause = entry.violation, entry.violation.cause
    shrunk = text.SMALLEST if entry.is_smallest else text.SCENARIO
    if entry.not_shrunk:
        shrunk = f"{text.SCENARIO}, not shrunk ({entry.not_shrunk})"
    run, *parameters = text.scenario_lines(entry.scenario, entry.tensors, shrunk)
    seen = [*_what_was_seen(entry)]
    # Lines that ran here alone, without those whose place stands above.
    above = (e if isinstance(e, str) else "\n".join(e) for e in seen)
    shown = "\n".join([violation.summary, *above])
    deciders = [e for e in entry.deciders if not entry.fix and str(e.line) not in shown]
    timing = [
        f"    timing, decision {number}: {decision.meaning}"
        for number, decision in enumerate(entry.decisions)
        if decision.chosen
    ]
    fixed = list[str]()
    if fix := entry.fix:
        about = (
            f"fixes this scenario; {fix.num_others} other scenarios on up to "
            f"{fix.max_ranks} ranks show no new violation and cost no more"
        )
        fixed = [f"  fix:        at {fix.place}: {about}"]
        fixed += [f"              {line}" for line in fix.lines]
    return [
        *seen,
        ["  ran only where it fails:", *titled("", deciders)] if deciders else [],
        f"  seen on:    {text.seen_on(violation.ranks, violation.parameters)}",
        _related("then", _of_kind(entry, is_consequence=True)),
        _related("also shows as", _of_kind(entry, is_consequence=False)),
        "",
        f"  {run}",
        [f"  {line}" for line in parameters],
        timing,
        "",
        f"  cause:      {cause}, {certainty(cause, violation.evidence)}",
        *fixed,
    ]


def _of_kind(entry: FoundViolation, *, is_consequence: bool) -> list[RelatedViolation]:
    """Return the consequences of a violation, or other forms of it."""
    return [e for e in entry.related if e.is_consequence == is_consequence]


def _what_was_seen(entry: FoundViolation) -> Iterator[list[str] | str]:
    """Yield all lines that belong to the summary, each line once."""
    evidence, shown = entry.violation.evidence, set[CodeLine]()
    of_summary = [event for event in evidence.events if not event.words]
    yield text.events_with_code(of_summary, shown)[1:]
    if isinstance(evidence, WrongGradient):
        yield f"  {'expected:':<11} {numbers_text(evidence.expected)}"
    if isinstance(evidence, WrongGradient | FrozenGradient):
        yield f"  {'observed:':<11} {numbers_text(evidence.observed)}"
    for title, events in titled_events(evidence):
        if title != "remedy:" or not (entry.fix or entry.left_over):
            yield text.events_with_code(events, shown, title)
    yield titled("witness:", witness_lines(entry.witness))
    about = f"they wrote memory or communicated on rank {evidence.rank}, step {evidence.step}"
    yield titled("lines:", (each for each in entry.acts if each not in shown), about)
    yield titled("missing at:", entry.left_out)
    rank = min(entry.violation.ranks, default=0)
    are = "it is" if len(entry.left_over) == 1 else "they are"
    yield titled(
        "left over:",
        (each.text for each in entry.left_over),
        f"on rank {rank}; the violation disappears if {are} reset at the start of each step",
    )


def _related(title: str, related: Sequence[RelatedViolation]) -> list[str]:
    """Return a line for each violation that another one explains."""
    lines = [
        f"  {title}: {other.property} ({other.cause}): {other.summary}"
        for other in related[:_NUM_RELATED]
    ]
    if num_more := len(related[_NUM_RELATED:]):
        lines.append(f"  {title}: ... and {num_more} more (--json PATH lists them)")
    return lines


def _facts(entry: FoundViolation) -> dict[str, Any]:
    """Return what JSON alone has of a violation."""
    violation = entry.violation
    data: dict[str, Any] = {
        "scenario": entry.scenario.to_json(),
        "schedule": entry.schedule.to_json(),
        "evidence": evidence_json(violation.cause, violation.evidence),
        "consequences": _related_json(_of_kind(entry, is_consequence=True)),
        "other_forms": _related_json(_of_kind(entry, is_consequence=False)),
    }
    if entry.witness is not None:
        data["witness"] = witness_json(entry.witness)
    lines = {
        "lines": entry.acts,
        "missing_at": entry.left_out,
        "ran_only_here": entry.deciders,
    }
    data |= {name: [*map(str, each)] for name, each in lines.items() if each}
    if entry.left_over:
        data["left_over"] = [
            {
                "path": each.path,
                "before": each.before.word,
                "after": each.after.word,
                "step": each.step,
            }
            for each in entry.left_over
        ]
    if fix := entry.fix:
        numbers = {"num_others": fix.num_others, "max_ranks": fix.max_ranks}
        data["fix"] = {"place": str(fix.place), "lines": [*fix.lines], **numbers}
    return data


def _related_json(related: Sequence[RelatedViolation]) -> list[dict[str, str]]:
    keys = ("property", "cause", "summary")
    return [{key: getattr(each, key) for key in keys} for each in related]
