"""The page about the comparison, docs/comparison.md, made from outcomes alone."""

from collections.abc import Iterator, Sequence
from typing import Final

from studies.comparison.methods.all_methods import METHODS
from studies.comparison.methods.method import Method
from studies.comparison.outcomes import Outcome, stored
from studies.documents import RESULTS, Document, table
from syncverify.bugbank.catalogue import entries

_OPENING = """\
# Comparison with other methods

<!-- Made by `python -m studies.comparison --markdown docs/comparison.md`; do not edit. -->

The methods in use today to check that gradients are synchronized correctly, applied to the
defects of the bug bank. Each method is given each defect in the smallest scenario that shows
it, and the fixed twin of the defect in the same scenario; all methods but the last repeat the
steps of the scenario until there are 10. A defect is *caught* if the method reports an error,
and an alarm on a twin is a *false alarm*. A run that raises, dies or hangs needs no method to
be noticed, and counts as caught. An error in which defect and twin end alike does not count:
the subject refuses the scenario, or the place cannot play it. A method that does not apply to
a defect misses it. Each defect was played once in each place: where threads of gloo or Python
race, another run may end differently. A command continues the stored verdicts, and plays the
missing ones. LocalTensor, DebugMode and syncverify were played on 2026-11-27 (torch 2.13.0), the
other methods on that day where the smallest scenario had changed and the machine had time, and
else on 2026-11-22.

```console
$ python -m studies.comparison --jobs 2 --json studies/results/comparison.json --markdown docs/comparison.md
```

The search of `syncverify` finds the scenarios and shrinks them; `syncverify bank --json` keeps
them in `studies/results/bug-bank.json`. A defect without a scenario counts as missed by all
methods. Where ranks are processes or threads on a CPU, the streams of `torch.cuda` are
stand-ins that hold nothing, so that defects in subjects that use streams can be played there
as well. Waits between these streams order nothing, since a CPU runs all operators in order.
"""
_SILENT = """\
*Silent* defects give a wrong gradient, or waste time or memory, without an error or a hang on
real hardware."""


_NOT_IN_THE_TABLE = """\
## Tools that read another program

These two cannot play a class of the bank, so they have no column above. Small programs were written
by hand for each, on 2026-11-27: the mistake, and the right program beside it.

- [spmd_types](https://pypi.org/project/spmd-types/) 0.3.1 checks types of tensors (replicated, varying,
  partial) at operators and collectives. The autograd engine makes `.grad` without a type, so each
  gradient was annotated by hand. In its strict mode it stops at that gradient, also in the right
  program; the table shows `typecheck("permissive")` on a fake process group of two ranks.
- [llm-infra-verifier](https://github.com/NJUDeepEngine/llm-infra-verifier) (commit fafd60d, z3-solver
  5.4.1) verifies programs of 48 operations in a form of its own. A person, a language model or a
  lifter for TileLang writes them; it reads no Python class. A mistake that the translation drops
  is gone.

| program | spmd_types, annotated | llm-infra-verifier |
|---|---|---|
| right: one reduction | silent | silent |
| right: the gradient is a view of a bucket, or is copied to one and back | alarm | no such operation |
| the gradient is never reduced | alarm | alarm |
| reduced twice | alarm; silent without annotations | alarm |
| divided by 3 in place of 2 | silent | no such operation |
| result read before `wait()` | no such notion | alarm |
| handle never waited for | silent | alarm |
| input overwritten while it is reduced | no such notion | silent |
"""

FIGURES: Final = RESULTS / "comparison.json"


def page() -> str:
    """Return the page of the stored outcomes."""
    return page_of([*stored(FIGURES).values()], len(entries()))


def page_of(outcomes: Sequence[Outcome], num_entries: int) -> str:
    """Render the page.

    Args:
        outcomes: Outcomes, in the order of the bank.
        num_entries: Number of defects in the bank.

    Returns:
        The page, in Markdown.
    """
    parts = [
        _OPENING,
        "## Figures\n",
        _extent(outcomes, num_entries),
        "\n".join(_summary(outcomes)) + "\n",
        _SILENT + "\n",
        "Caught of those played, by section of the bank:\n",
        "\n".join(_by_section(outcomes)) + "\n",
        "## Set-up and limits of each method\n",
        *(f"### {method.title}\n\n{method.about}\n" for method in METHODS),
        "## Each defect\n",
        "`x` caught, `-` missed, `!` false alarm on the twin, `.` not played.\n",
        "\n".join(_table(outcomes)) + "\n",
        _NOT_IN_THE_TABLE,
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


PAGE: Final = Document("docs/comparison.md", page)
