"""The page about the comparison, docs/comparison.md, made from outcomes alone."""

from collections.abc import Iterator, Sequence
from typing import Final

from studies.comparison.methods.all_methods import METHODS
from studies.comparison.methods.method import Method
from studies.comparison.outcomes import Outcome, stored
from studies.documents import Document, table
from studies.rows import RESULTS
from syncverify.bugbank.catalogue import entries

_SILENT = """\
*Silent* defects give a wrong gradient, or waste time or memory, without an error or a hang on
real hardware."""


FIGURES: Final = RESULTS / "comparison.json"


def page() -> str:
    """Return the page of the stored outcomes."""
    return page_of([*stored(FIGURES).values()], len(entries()))


def page_of(outcomes: Sequence[Outcome], num_entries: int) -> str:
    """Render the part of the page that follows from outcomes.

    Args:
        outcomes: Outcomes, in the order of the bank.
        num_entries: Number of defects in the bank.

    Returns:
        The part, in Markdown.
    """
    parts = [
        "## Figures\n",
        _extent(outcomes, num_entries),
        "\n".join(_summary(outcomes)) + "\n",
        _SILENT + "\n",
        "Caught of those played, by section of the bank:\n",
        "\n".join(_by_section(outcomes)) + "\n",
        "## Each defect\n",
        "`x` caught, `-` missed, `!` false alarm on the twin, `.` not played.\n",
        "\n".join(_table(outcomes)) + "\n",
        "## Words\n",
        "The first message of each method on a defect, or the reason for none; false alarms.\n",
        "\n".join(_words(outcomes)) + "\n",
    ]
    return "\n".join(parts)


def _extent(outcomes: Sequence[Outcome], num_entries: int) -> str:
    played = len(outcomes)
    if played == num_entries:
        return f"All {played} defects of the bank.\n"
    return f"{played} of the {num_entries} defects of the bank; the others were not played.\n"


def _summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    head = ("method", "played", "caught", "silent ones", "missed", "false alarms")
    return table(head, (_figures(method, outcomes) for method in METHODS))


def _figures(method: Method, outcomes: Sequence[Outcome]) -> tuple[object, ...]:
    played = _played(outcomes, method)
    silent = [outcome for outcome in played if outcome.is_silent]
    caught = _caught(played, method)
    of_silent = f"{_caught(silent, method)} of {len(silent)}"
    alarms = sum(outcome.twin[method.id].alarmed for outcome in played)
    missed = len(played) - caught
    return method.title, len(played), caught, of_silent, missed, alarms


def _played(outcomes: Sequence[Outcome], method: Method) -> list[Outcome]:
    return [outcome for outcome in outcomes if method.id in outcome.defect]


def _by_section(outcomes: Sequence[Outcome]) -> Iterator[str]:
    sections = dict.fromkeys(outcome.section for outcome in outcomes)
    members = [[o for o in outcomes if o.section == section] for section in sections]
    rows = (
        (
            method.title,
            *(f"{_caught(each, method)}/{len(each)}" for each in played),
        )
        for method in METHODS
        for played in [[_played(each, method) for each in members]]
    )
    return table(("method", *sections), rows)


def _caught(outcomes: Sequence[Outcome], method: Method) -> int:
    return sum(outcome.defect[method.id].alarmed for outcome in outcomes)


def _table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    rows = (
        (
            f"`{each.id}`",
            "yes" if each.is_silent else "no",
            *(_mark(each, method.id) for method in METHODS),
        )
        for each in outcomes
    )
    return table(("defect", "silent", *(method.title for method in METHODS)), rows)


def _mark(outcome: Outcome, method: str) -> str:
    if method not in outcome.defect:
        return "`.`"
    caught = "x" if outcome.defect[method].alarmed else "-"
    return f"`{caught}{'!' if outcome.twin[method].alarmed else ''}`"


def _words(outcomes: Sequence[Outcome]) -> Iterator[str]:
    rows = (row for outcome in outcomes for row in _said(outcome))
    return table(("defect", "method", "words"), rows)


def _said(outcome: Outcome) -> Iterator[tuple[str, str, str]]:
    for method in (m for m in METHODS if m.id in outcome.defect):
        if words := outcome.defect[method.id].words:
            yield f"`{outcome.id}`", method.title, _cell(words)
        of_twin = outcome.twin[method.id]
        if of_twin.alarmed:
            yield f"`{outcome.id}`, twin", method.title, _cell(of_twin.words)


def _cell(words: str) -> str:
    return "`" + words.replace("`", "'").replace("|", "/") + "`"


PAGE: Final = Document("docs/comparison.md", page, "figures")
