"""Results of pairs, stored as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Self

from studies.releases.release_table import ReleaseTable
from studies.timemachine.pairs import Pair, table
from studies.timemachine.playing import ROOT, Played, play
from studies.timemachine.releases import Releases

# Scenarios in which a fixed release has to be silent, and a remedy beside a fixed release.
EXAMPLES: Final = 300
_EXAMPLES_BESIDE: Final = 60
STORED: Final = ROOT / "studies" / "results" / "timemachine.json"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one pair; a side is None until it is played.

    Attributes:
        date: Day of the last measurement.
        torch: Version of torch.
        bad: Report about the release with the defect.
        good: Report about the release without it.
        repaired: Report about the release with the defect and the remedy.
        newest: Report about the release that was the newest one.
        newest_release: Version of that release.
    """

    date: str
    torch: str
    bad: Played | None = None
    good: Played | None = None
    repaired: Played | None = None
    newest: Played | None = None
    newest_release: str = ""

    @classmethod
    def read(cls, entry: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` wrote as JSON."""
        sides = {
            name: Played.read(entry[name]) if entry.get(name) else None
            for name in ("bad", "good", "repaired", "newest")
        }
        return cls(**{**entry, **sides})

    def side(self, name: str) -> Played | None:
        """Return the report about a side."""
        played: Played | None = getattr(self, name)
        return played

    def needs(self, pair: Pair, side: str) -> bool:
        """Tell whether a side was not played, or with a release that is no longer the newest."""
        outdated = side == "newest" and self.newest_release != newest_release(pair)
        return outdated or self.side(side) is None

    def holds(self, pair: Pair) -> bool:
        """Tell whether the defect is found as expected, and every other side is silent."""
        return (
            self.bad is not None
            and self.bad.shows(pair)
            and all(self._is_silent(pair, side) for side in pair.sides[1:])
        )

    def _is_silent(self, pair: Pair, name: str) -> bool:
        # The fixed release is the proof, where there is one; the remedy is the report's word.
        is_proof = name != "repaired" or not pair.good
        side = self.side(name)
        needed = EXAMPLES if is_proof else 1
        return side is not None and side.is_silent and side.examples >= needed


def with_side(result: Result | None, pair: Pair, side: str, played: Played) -> Result:
    """Return a result with the report about one side, played today."""
    today = datetime.now(UTC).date().isoformat()
    known = result or Result(today, version("torch"))
    changes: dict[str, Any] = {side: played}
    if side == "newest":
        changes["newest_release"] = newest_release(pair)
    return replace(known, date=today, torch=version("torch"), **changes)


def newest_release(pair: Pair) -> str:
    """Return the newest release of the package, as in the stored table of releases."""
    return ReleaseTable.read().newest[pair.package].version


def version_of(pair: Pair, side: str) -> str:
    """Return the version of the release of a side."""
    match side:
        case "good":
            return pair.good
        case "newest":
            return newest_release(pair)
    return pair.bad


def played_side(pair: Pair, side: str, releases: Releases) -> Played:
    """Play one side of a pair.

    Returns:
        The report.

    Raises:
        ClickException: The release cannot be had, or its play ended without a verdict.
    """
    imports = releases.installed(pair.package, table().imports.get(pair.package, []))
    hides = table()[pair.after].remedy if pair.after else ()
    release_version = version_of(pair, side)
    match side:
        case "bad":
            release = releases.repaired(pair.package, release_version, hides, pair.part)
            return play(pair, [release, imports], examples=EXAMPLES, stops=True)
        case "good" | "newest":
            release = releases.unpacked(pair.package, release_version, pair.part)
            return play(pair, [release, imports], examples=EXAMPLES)
    release = releases.repaired(
        pair.package, release_version, (*hides, *pair.remedy), pair.part
    )
    examples = _EXAMPLES_BESIDE if pair.good else EXAMPLES
    return play(pair, [release, imports], examples=examples)


def stored() -> dict[str, Result]:
    """Return the stored results by the name of their pair."""
    if not STORED.exists():
        return {}
    content = json.loads(STORED.read_text(encoding="utf-8"))
    return {name: Result.read(entry) for name, entry in content.items()}


def store(results: dict[str, Result]) -> None:
    """Store results, in the order of the table."""
    order = [pair.name for pair in table().pairs if pair.name in results]
    rows = {name: asdict(results[name]) for name in order}
    part = STORED.with_suffix(".part")  # readers see a whole file
    part.write_text(f"{json.dumps(rows, indent=1)}\n", encoding="utf-8")
    part.replace(STORED)
