"""The page about the mistakes, from the corpus and the figures of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from studies.documents import RESULTS, Document, table
from studies.mistakes.corpus import KINDS, Mistake, mistakes
from studies.mistakes.fixes import NUM_SCENARIOS
from studies.mistakes.scoring import EXAMPLES, Score

FIGURES: Final = RESULTS / "mistakes.json"


def stored() -> dict[str, Score]:
    """Return the stored scores by the name of the mistake."""
    if not FIGURES.exists():
        return {}
    content = json.loads(FIGURES.read_text(encoding="utf-8"))
    return {entry["name"]: Score.read(entry) for entry in content}


def write(scores: dict[str, Score]) -> None:
    """Write figures and page."""
    rows = [asdict(scores[each.name]) for each in mistakes() if each.name in scores]
    FIGURES.write_text(f"{json.dumps(rows, indent=1)}\n", encoding="utf-8")
    PAGE.write()


def page() -> str:
    """Return the figures and the mistakes of the page."""
    scores = stored()
    extent = (
        f"Each mistake is searched in {EXAMPLES} scenarios on `sim`, seed 0. Each fix is "
        f"played in {NUM_SCENARIOS} other scenarios beside the right program."
    )
    parts = [extent, "", *summary(scores)]
    for kind in KINDS:
        own = [each for each in mistakes() if each.kind == kind]
        parts += ["", f"## {kind.capitalize()}", "", *_table(own, scores)]
    return "\n".join(parts)


def summary(scores: dict[str, Score]) -> Iterator[str]:
    """Yield a table of figures by kind."""
    head = ("kind", "mistakes", "found", "right cause", "wrong certain", "fix offered")
    rows = (
        (
            kind,
            *_figures(
                [
                    scores[each.name]
                    for each in mistakes()
                    if kind in {each.kind, "all"} and each.name in scores
                ]
            ),
        )
        for kind in (*KINDS, "all")
    )
    return table((*head, "fixes that are none"), rows)


def _figures(scores: Sequence[Score]) -> tuple[int, ...]:
    return (
        len(scores),
        sum(each.is_found for each in scores),
        sum(each.is_right for each in scores),
        sum(bool(each.wrong_certain) for each in scores),
        sum(bool(each.fixes) for each in scores),
        sum(len(each.regressions) for each in scores),
    )


def _table(listed: Sequence[Mistake], scores: dict[str, Score]) -> Iterator[str]:
    head = (
        "mistake",
        "in",
        "right line",
        "wrong line",
        "since",
        "report",
        "right",
        "fix",
    )
    rows = (
        (
            f"`{each.name}`",
            each.base,
            f"`{each.old}`",
            f"`{each.new}`",
            each.why,
            *_cells(scores.get(each.name)),
        )
        for each in listed
    )
    return table(head, rows)


def _cells(score: Score | None) -> list[str]:
    if score is None:
        return ["not measured", "", ""]
    if not score.is_found:
        return ["nothing", "no", ""]
    identities = [
        f"{each.identity}, {each.certainty.partition(':')[0]}" for each in score.told
    ]
    right = "yes" if score.is_right else "no"
    wrong = f"; wrong certain: {', '.join(score.wrong_certain)}"
    fixes = [
        f"{fix.verdict}: `{' / '.join(line.strip() for line in fix.lines)}`"
        for fix in score.fixes
    ]
    return [
        "; ".join(identities),
        right + (wrong if score.wrong_certain else ""),
        "; ".join(fixes) or "none",
    ]


PAGE: Final = Document("docs/one-line-mistakes.md", page, "mistakes")
