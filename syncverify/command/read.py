"""The execution of `syncverify read`: judge the flight recorder's dumps of a job."""

from collections.abc import Iterator, Mapping, Sequence

from syncverify.command.process_exit import VIOLATION
from syncverify.judge.dumps.judging import JobVerdict, judge_dumps
from syncverify.judge.dumps.reading import Dump, read_dumps
from syncverify.judge.properties.registry import STATEMENTS_IN_ANY_PROGRAM
from syncverify.judge.violation import Violation
from syncverify.plain_text import counted, first_of, noun_of
from syncverify.report.account import Account, Explanation, count_of_violations
from syncverify.report.annotations import annotations_of, say_annotations
from syncverify.report.console import say
from syncverify.scenario.settings import ReadOptions

_MOST_NAMED = 16  # ranks in one line


def execute(options: ReadOptions) -> int:
    """Read dumps and print the verdict."""
    dumps = read_dumps(options.dumps)
    verdict = judge_dumps(dumps)
    account = _account(dumps, verdict)
    say_annotations(options.shown_as, annotations_of(account))
    say(account.text())
    return 0 if account.is_right else VIOLATION


def _account(dumps: Mapping[int, Dump], verdict: JobVerdict) -> Account:
    title = count_of_violations(len(verdict.violations))
    collectives = noun_of(verdict.num_collectives, "collective")
    judged = f"{verdict.num_collectives:,} {collectives} in {len(dumps):,}"
    return Account(
        subject="",
        verdict=f"{title}: {judged} {noun_of(len(dumps), 'dump')}",
        is_right=not verdict.violations,
        explanations=[*map(_explained, verdict.violations)],
        notes=["\n".join(_notes(dumps, verdict))],
    )


def _notes(dumps: Mapping[int, Dump], verdict: JobVerdict) -> Iterator[str]:
    if verdict.absent:
        yield f"note: no dump of {_few(verdict.absent)}"
    cut = [rank for rank, dump in dumps.items() if dump.is_cut]
    if cut:
        yield (
            f"note: the recorder dropped the first entries of {_few(cut)}, so "
            "earlier collectives, and messages, are not judged"
        )
    if verdict.num_unfinished:
        yield (
            f"note: {counted(verdict.num_unfinished, 'collective')} had not ended, though all "
            "ranks came: look at network and devices, or at the work before them"
        )


def _explained(violation: Violation) -> Explanation:
    events = (event.words for event in violation.evidence.events)
    return Explanation.of(
        violation,
        STATEMENTS_IN_ANY_PROGRAM,
        summary="\n".join([violation.summary, *events]),
        sections=[f"  seen on:    {_few(violation.ranks)}"],
    )


def _few(ranks: Sequence[int]) -> str:
    """Name ranks, or the first ones of many."""
    return f"{noun_of(len(ranks), 'rank')} {first_of([*map(str, ranks)], _MOST_NAMED)}"
