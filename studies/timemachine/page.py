"""The page about the pairs, from their table and the stored results."""

from typing import Final

from studies.documents import Document
from studies.documents import table as markdown
from studies.releases.marks import marked
from studies.releases.release_table import ReleaseTable
from studies.timemachine.pairs import Pair, table
from studies.timemachine.results import PlayedSide, Sides, stored


def page() -> str:
    """Return the table of pairs."""
    pairs, results = table(), stored()
    newest = f"newest on {marked('asked', ReleaseTable.read().date)}"
    head = ("pair", "defect", "release", "played", "shows", "after", "fixed release")
    rows = (_row(pair, results.get(pair.name, {})) for pair in pairs.pairs)
    return "\n".join(markdown((*head, newest, "with the remedy"), rows))


def _row(pair: Pair, sides: Sides) -> list[str]:
    bad = sides.get("bad")
    how = (
        f"{pair.judged_by}, {max(side.date for side in sides.values())}" if bad else ""
    )
    return [
        f"`{pair.name}`<br>{pair.link}",
        pair.mechanism,
        f"{pair.package} {pair.bad}",
        how,
        *(_caught(pair, bad) if bad else ("not measured", "")),
        f"{pair.good}: {_silence(sides.get('good'))}" if pair.good else "none",
        _newest(pair, sides.get("newest")) if "newest" in pair.sides else "",
        _silence(sides.get("repaired")) if pair.remedy else "",
    ]


def _caught(pair: Pair, bad: PlayedSide) -> tuple[str, str]:
    verdict = "" if bad.shows(pair) else "**not as expected** "
    found = ", ".join(f"`{each}`" for each in bad.violations)
    return f"{verdict}{found}", f"{bad.examples}, {bad.seconds:.0f} s"


def _newest(pair: Pair, side: PlayedSide | None) -> str:
    if side is None:
        return _silence(side)
    return f"{marked(f'seen {pair.package}', side.release)}: {_silence(side)}"


def _silence(side: PlayedSide | None) -> str:
    if side is None:
        return "not measured"
    if side.is_silent:
        return f"silent in {side.examples}"
    return f"**{', '.join(side.violations)}**"


PAGE: Final = Document("docs/timemachine.md", page, "pairs")
