"""The page about the red team, from its programs and the figures of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from studies.documents import RESULTS, Document, table
from studies.redteam.program import BLIND_SPOTS, Program, programs
from studies.redteam.scoring import Score

FIGURES: Final = RESULTS / "redteam.json"


def write(scores: Sequence[Score], examples: int) -> None:
    """Write the figures, those of other programs as they are stored, and the page."""
    stored = json.loads(FIGURES.read_text(encoding="utf-8"))
    known = stored["programs"] if stored["examples"] == examples else {}
    new = {score.name: asdict(score) for score in scores}
    names = [program.name for program in programs()]
    rows = {name: row for name in names if (row := new.get(name) or known.get(name))}
    text = json.dumps({"examples": examples, "programs": rows}, indent=1)
    FIGURES.write_text(f"{text}\n", encoding="utf-8")
    PAGE.write()
    SECOND_PAGE.write()


def page() -> str:
    """Return the figures and the programs of the first team."""
    figures = _figures()
    rows = figures["programs"]
    parts = [*_summary(rows, figures["examples"]), ""]
    wrong, right = _team(is_second=False)
    for topic, meaning in BLIND_SPOTS.items():
        own = [program for program in wrong if program.topic == topic]
        parts += [f"## Wrong: {topic}", "", f"Blind spot: {meaning}.", ""]
        parts += [*_table(own, rows, "trigger"), ""]
    parts += ["## Right", "", *_table(right, rows, "right, since"), ""]
    return "\n".join(parts)


def second_page() -> str:
    """Return the figures and the programs of the second team."""
    rows = _figures()["programs"]
    wrong, right = _team(is_second=True)
    parts = [
        f"Of {len(wrong)} wrong programs {_count(wrong, rows, 'caught')} are caught.",
        _right_in_words(right, rows),
        "",
        "### Wrong programs of the second team",
        "",
        *_table(wrong, rows, "trigger"),
        "",
        "### Right programs of the second team",
        "",
        *_table(right, rows, "right, since"),
    ]
    return "\n".join(parts)


def _figures() -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return figures


def _team(*, is_second: bool) -> tuple[list[Program], list[Program]]:
    """List the wrong and the right programs of a team."""
    team = [each for each in programs() if each.is_of_second_team == is_second]
    wrong = [program for program in team if program.is_wrong]
    return wrong, [program for program in team if not program.is_wrong]


def _summary(rows: dict[str, Any], examples: int) -> Iterator[str]:
    yield f"Figures: at most {examples} scenarios a program, up to 4 ranks unless `--ranks` is there, on `sim`, seed 0."
    yield ""
    wrong, right = _team(is_second=False)
    by_topic = {
        topic: [each for each in wrong if topic in {each.topic, "all"}]
        for topic in (*BLIND_SPOTS, "all")
    }
    counted = (
        (t, len(own), _count(own, rows, "caught")) for t, own in by_topic.items()
    )
    yield from table(("blind spot", "wrong programs", "caught"), counted)
    yield ""
    yield _right_in_words(right, rows)


def _right_in_words(right: Sequence[Program], rows: dict[str, Any]) -> str:
    return (
        f"Of {len(right)} right programs {_count(right, rows, 'silent')} are silent, "
        f"{_count(right, rows, 'not judged')} not judged, "
        f"{_count(right, rows, 'accused')} accused."
    )


def _count(listed: Sequence[Program], rows: dict[str, Any], verdict: str) -> int:
    return sum(rows.get(each.name, {}).get("verdict") == verdict for each in listed)


def _table(listed: Sequence[Program], rows: dict[str, Any], why: str) -> Iterator[str]:
    head = ("program", "mechanism", why, "contract", "verdict", "after")
    cells = (
        (
            f"`{each.name}`",
            each.mechanism,
            each.trigger,
            f"`{each.contract_in_words}`",
            *_verdict(rows.get(each.name)),
        )
        for each in listed
    )
    return table(head, cells)


def _verdict(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["not measured", ""]
    found = f": {row['identity']}" if row["identity"] else ""
    return [f"{row['verdict']}{found}", str(row["examples"])]


PAGE: Final = Document("docs/redteam.md", page, "programs")
SECOND_PAGE: Final = Document("docs/redteam.md", second_page, "second team")
