"""The page about the comparison, docs/comparison.md, made from outcomes alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comparison.methods.all_methods import METHODS
from comparison.methods.method import Method
from comparison.outcomes import Outcome

_OPENING = """\
# Comparison with other methods

<!-- Made by `python -m comparison --markdown docs/comparison.md`; do not edit. -->

What people use today to find out whether gradients are synchronized rightly, on the defects
of the bug bank. Each method is given each defect in the smallest scenario that shows it, and
the fixed twin of the defect in the same scenario; all but the last repeat its steps until
there are 10. A defect is *caught* if the method says that something is wrong, and an alarm on
a twin is a *false alarm*. A run that raises, dies or hangs is noticed by whoever runs it,
whichever the method, and counts as caught; an error in which defect and twin end alike does
not: the subject refuses the scenario, or the place cannot play it. A method that does not
apply to a defect misses it. Each was played once in each place: where gloo's or Python's
threads race, another run may come out otherwise.

```console
$ python -m comparison --jobs 2 --json comparison.json --markdown docs/comparison.md
```

The scenarios are found by `syncverify`'s search, shrunk, and kept in
`comparison/smallest.json`; one that shows its defect no longer is searched for anew. A defect
for which 500 scenarios show nothing counts as missed by all methods. Where ranks are
processes or threads on a CPU, `torch.cuda`'s streams are stand-ins that hold nothing, so that
defects in subjects that use streams can be played there as well. Their waits for other
streams order nothing then, for a CPU runs all in order.
"""
_SILENT = """\
*Silent* defects give a wrong gradient, or waste time or memory, without an error or a hang on
real hardware."""


def page(outcomes: Sequence[Outcome], num_entries: int) -> str:
    """Render the page.

    Args:
        outcomes: In the order of the bank.
        num_entries: How many defects the bank has.

    Returns:
        Markdown.
    """
    parts = [
        _OPENING,
        "## Figures\n",
        _extent(outcomes, num_entries),
        "\n".join(_summary(outcomes)) + "\n",
        _SILENT + "\n",
        "Caught, by what is wrong:\n",
        "\n".join(_by_section(outcomes)) + "\n",
        "## How each was run, and what it cannot see\n",
        *(f"### {method.title}\n\n{method.about}\n" for method in METHODS),
        "## Each defect\n",
        "`x` caught, `-` missed, `!` false alarm on the twin.\n",
        "\n".join(_table(outcomes)) + "\n",
        "## Words\n",
        "What each method said first of a defect, or why it could say nothing, and of twins.\n",
        "\n".join(_words(outcomes)) + "\n",
    ]
    return "\n".join(parts)


def _extent(outcomes: Sequence[Outcome], num_entries: int) -> str:
    played = len(outcomes)
    if played == num_entries:
        return f"All {played} defects of the bank.\n"
    return f"{played} of the {num_entries} defects of the bank; the others were not played.\n"


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _rule(num_columns: int) -> str:
    return "|" + "---|" * num_columns


def _summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    silent = [outcome for outcome in outcomes if outcome.is_silent]
    yield _row(
        "method", f"caught of {len(outcomes)}", f"of {len(silent)} silent ones",
        "missed", "false alarms",
    )  # fmt: skip
    yield _rule(5)
    for method in METHODS:
        caught = _caught(outcomes, method)
        yield _row(
            method.title,
            caught,
            _caught(silent, method),
            len(outcomes) - caught,
            sum(outcome.twin[method.id].alarmed for outcome in outcomes),
        )


def _by_section(outcomes: Sequence[Outcome]) -> Iterator[str]:
    sections = dict.fromkeys(outcome.section for outcome in outcomes)
    members = [[o for o in outcomes if o.section == section] for section in sections]
    yield _row("method", *sections)
    yield _rule(1 + len(sections))
    for method in METHODS:
        yield _row(
            method.title, *(f"{_caught(each, method)}/{len(each)}" for each in members)
        )


def _caught(outcomes: Sequence[Outcome], method: Method) -> int:
    return sum(outcome.defect[method.id].alarmed for outcome in outcomes)


def _table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield _row("defect", "silent", *(method.title for method in METHODS))
    yield _rule(2 + len(METHODS))
    for outcome in outcomes:
        cells = (_mark(outcome, method.id) for method in METHODS)
        yield _row(f"`{outcome.id}`", "yes" if outcome.is_silent else "no", *cells)


def _mark(outcome: Outcome, method: str) -> str:
    caught = "x" if outcome.defect[method].alarmed else "-"
    return f"`{caught}{'!' if outcome.twin[method].alarmed else ''}`"


def _words(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield _row("defect", "method", "words")
    yield _rule(3)
    for outcome in outcomes:
        for method in METHODS:
            said = outcome.defect[method.id]
            if said.words:
                yield _row(f"`{outcome.id}`", method.title, _cell(said.words))
            of_twin = outcome.twin[method.id]
            if of_twin.alarmed:
                yield _row(f"`{outcome.id}`, twin", method.title, _cell(of_twin.words))


def _cell(words: str) -> str:
    return "`" + words.replace("`", "'").replace("|", "/") + "`"
