"""Results of pairs, stored as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Self

from timemachine.pairs import Pair, table
from timemachine.playing import ROOT, Played, play
from timemachine.releases import Releases

# Scenarios in which a fixed release has to be silent, and a remedy beside a fixed release.
EXAMPLES: Final = 300
_EXAMPLES_BESIDE: Final = 60
STORED: Final = ROOT / "studies" / "results" / "timemachine.json"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one pair.

    Attributes:
        date: Day of the measurement.
        torch: Version of torch.
        bad: Report about the release with the defect.
        good: Report about the release without it; None if there is no such release.
        repaired: Report about the release with the defect and the remedy; None if the pair
            has no remedy.
    """

    date: str
    torch: str
    bad: Played
    good: Played | None
    repaired: Played | None

    @classmethod
    def read(cls, entry: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` wrote as JSON."""
        sides = {
            name: Played.read(entry[name]) if entry[name] else None
            for name in ("bad", "good", "repaired")
        }
        return cls(**{**entry, **sides})

    def holds(self, pair: Pair) -> bool:
        """Tell whether the defect is found as expected, and every other side is silent."""
        others = [side for side in (self.good, self.repaired) if side is not None]
        return (
            self.bad.shows(pair)
            and all(side.is_silent for side in others)
            and max((side.examples for side in others), default=0) >= EXAMPLES
        )


def measured(pair: Pair, releases: Releases) -> Result:
    """Play all sides of a pair."""
    imports = releases.installed(pair.package, table().imports.get(pair.package, []))
    bad = [releases.unpacked(pair.package, pair.bad), imports]
    good = repaired = None
    if pair.good:
        release = releases.unpacked(pair.package, pair.good)
        good = play(pair, [release, imports], examples=EXAMPLES)
    if pair.remedy:
        release = releases.repaired(pair.package, pair.bad, pair.remedy)
        # The fixed release is the proof, where there is one; the remedy is the report's word.
        examples = _EXAMPLES_BESIDE if pair.good else EXAMPLES
        repaired = play(pair, [release, imports], examples=examples)
    return Result(
        datetime.now(UTC).date().isoformat(),
        version("torch"),
        play(pair, bad, examples=EXAMPLES, stops=True),
        good,
        repaired,
    )


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
    STORED.write_text(f"{json.dumps(rows, indent=1)}\n", encoding="utf-8")
