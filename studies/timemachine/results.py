"""The stored results of pairs: a row for each side."""

from collections import defaultdict
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final, Self

from studies.releases.release_table import ReleaseTable
from studies.rows import RESULTS, RowFile, today
from studies.timemachine.pairs import Pair, table
from studies.timemachine.playing import Played, play
from studies.timemachine.releases import Releases

# Scenarios in which a fixed release has to be silent, and a remedy beside a fixed release.
EXAMPLES: Final = 300
_EXAMPLES_BESIDE: Final = 60


@dataclass(frozen=True, slots=True)
class PlayedSide:
    """The result of one side of a pair.

    Attributes:
        pair: Name of the pair.
        side: `bad`, `good`, `repaired`, or `newest`: the release that was the newest one.
        release: Version of the release.
        date: Day of the play.
        torch: Version of torch.
        examples: Scenarios that were judged.
        seconds: Processor seconds of the search, shrinking and the start included.
        violations: Violations, each as `property (cause)`.
        names_place: Whether the first one names the place that the pair expects.
    """

    pair: str
    side: str
    release: str
    date: str
    torch: str
    examples: int
    seconds: float
    violations: tuple[str, ...] = ()
    names_place: bool = False

    @classmethod
    def of(cls, pair: Pair, side: str, played: Played) -> Self:
        """Return the result of a side that was played today."""
        return cls(
            *(pair.name, side, version_of(pair, side), today(), version("torch")),
            *(played.examples, played.seconds, played.violations),
            names_place=bool(played.violations) and pair.place in played.diagnosis,
        )

    @property
    def is_silent(self) -> bool:
        """Tell whether scenarios were judged and hold."""
        return self.examples > 0 and not self.violations

    def shows(self, pair: Pair) -> bool:
        """Tell whether the first violation is the one that the pair expects."""
        expected = f"{pair.violates} ({pair.cause})"
        return self.names_place and self.violations[0] == expected


SIDES: Final = RowFile(RESULTS / "timemachine.jsonl", PlayedSide, ("pair", "side"))
Sides = dict[str, PlayedSide]


def stored() -> dict[str, Sides]:
    """Return the stored sides of each pair, by the name of the side."""
    found = defaultdict[str, Sides](dict)
    for row in SIDES.read():
        found[row.pair][row.side] = row
    return dict(found)


def needs(sides: Sides, pair: Pair, side: str) -> bool:
    """Tell whether a side was not played, or with a release that is no longer the newest."""
    is_played = side in sides
    return not is_played or sides[side].release != version_of(pair, side)


def holds(sides: Sides, pair: Pair) -> bool:
    """Tell whether the defect is found as expected, and every other side is silent."""
    is_shown = "bad" in sides and sides["bad"].shows(pair)
    return is_shown and all(_is_silent(sides, pair, side) for side in pair.sides[1:])


def _is_silent(sides: Sides, pair: Pair, name: str) -> bool:
    # The fixed release is the proof, where there is one; the remedy is the report's word.
    is_proof = name != "repaired" or not pair.good
    side, needed = sides.get(name), EXAMPLES if is_proof else 1
    return side is not None and side.is_silent and side.examples >= needed


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


def played_side(pair: Pair, side: str, releases: Releases) -> PlayedSide:
    """Play one side of a pair.

    Returns:
        The result of today.

    Raises:
        ClickException: The release cannot be had, or its play ended without a verdict.
    """
    imports = releases.installed(pair.package, table().imports.get(pair.package, []))
    hides = table()[pair.after].remedy if pair.after else ()
    remedies = {"bad": hides, "repaired": (*hides, *pair.remedy)}
    release = releases.repaired(
        pair.package, version_of(pair, side), remedies.get(side, ()), pair.part
    )
    is_beside = side == "repaired" and pair.good
    examples = _EXAMPLES_BESIDE if is_beside else EXAMPLES
    stops = side == "bad"
    played = play(pair, [release, imports], examples=examples, stops=stops)
    return PlayedSide.of(pair, side, played)
