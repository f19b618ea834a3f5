"""The page about the pairs, from their table and the stored results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from studies.documents import Document
from studies.documents import table as markdown
from studies.releases.marks import marked
from studies.releases.release_table import ReleaseTable
from studies.timemachine.pairs import Pair, Table, table
from studies.timemachine.playing import Played
from studies.timemachine.results import Result, stored


def page() -> str:
    """Return the figures and the pairs of the page."""
    pairs, results = table(), stored()
    parts = [*_summary(pairs, results), ""]
    for pair in pairs.pairs:
        parts += [*_section(pair, results.get(pair.name)), ""]
    return "\n".join(parts) + "\n"


def _summary(pairs: Table, results: dict[str, Result]) -> Iterator[str]:
    newest = f"newest on {marked('asked', ReleaseTable.read().date)}"
    head = (
        "pair",
        "release",
        "judged by",
        "shows",
        "after",
        "seconds",
        "fixed release",
        newest,
    )
    rows = (_row(pair, results.get(pair.name)) for pair in pairs.pairs)
    return markdown((*head, "with the remedy"), rows)


def _row(pair: Pair, result: Result | None) -> list[str]:
    figures = _figures(pair, result) if result else ["not measured"] + [""] * 5
    release = f"{pair.package} {pair.bad}"
    return [f"[{pair.name}](#{pair.name})", release, pair.judged_by, *figures]


def _figures(pair: Pair, result: Result) -> list[str]:
    return [
        *_caught(pair, result.bad),
        f"{pair.good}: {_silence(result.good)}" if pair.good else "none",
        f"{_newest(pair, result)}{_silence(result.newest)}"
        if "newest" in pair.sides
        else "",
        _silence(result.repaired) if pair.remedy else "",
    ]


def _newest(pair: Pair, result: Result) -> str:
    release = result.newest_release
    return f"{marked(f'seen {pair.package}', release)}: " if release else ""


def _caught(pair: Pair, bad: Played | None) -> list[str]:
    if bad is None:
        return ["not measured", "", ""]
    verdict = "caught" if bad.shows(pair) else "**not as expected**"
    found = ", ".join(f"`{each}`" for each in bad.violations)
    scenarios = "1 scenario" if bad.examples == 1 else f"{bad.examples} scenarios"
    return [
        f"{verdict}: {found}",
        scenarios,
        f"{bad.seconds:.0f}",
    ]


def _silence(side: Played | None) -> str:
    if side is None:
        return "not measured"
    if side.is_silent:
        return f"silent in {side.examples} scenarios"
    return f"**{', '.join(side.violations)}**"


def _section(pair: Pair, result: Result | None) -> Iterator[str]:
    yield f"## {pair.name}"
    yield ""
    hidden = f" with the remedy of [{pair.after}](#{pair.after})" if pair.after else ""
    yield f"{pair.link}, {pair.package} {pair.bad}{hidden}. {pair.mechanism}"
    yield ""
    if pair.part:
        yield f"The files in `{pair.part}` are those of the release, and all others those of the torch below."
        yield ""
    if result is None or result.bad is None:
        yield "Not measured."
        return
    yield f"Measured on {result.date} with torch {result.torch}."
    yield ""
    yield "```console"
    yield f"$ {result.bad.command}"
    yield "```"
    yield ""
    yield "```text"
    yield result.bad.shown_diagnosis
    yield "```"
    if pair.remedy:
        yield ""
        yield from _remedy(pair)


def _remedy(pair: Pair) -> Iterator[str]:
    yield "The remedy, as a change of the release:"
    yield ""
    yield "```diff"
    for edit in pair.remedy:
        yield f"--- {edit.file}"
        yield from (f"-{line}" for line in edit.old.splitlines())
        yield from (f"+{line}" for line in edit.new.splitlines())
    yield "```"


PAGE: Final = Document("docs/timemachine.md", page, "pairs")
