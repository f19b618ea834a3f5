"""A fix: a change of the subject's source that was played."""

from __future__ import annotations

from dataclasses import dataclass, field

from syncverify.trace.source_lines import SourceLine


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of some lines, with which the scenario holds all properties.

    Attributes:
        place: Line at which the change is made.
        lines: The change: lines after `+ ` come, lines after `- ` go, others stay.
        num_others: Number of other scenarios that were played with the change; none of them
            shows a violation that it does not show without, or costs more.
        max_ranks: Largest number of ranks of those scenarios.
        sets_back: Whether the change sets back what one step leaves for the next.
        change: The change as the search for it made it, to be played on other scenarios.
    """

    place: SourceLine
    lines: tuple[str, ...]
    num_others: int
    max_ranks: int
    sets_back: bool = False
    change: object = field(default=None, repr=False, compare=False)

    @property
    def old(self) -> list[str]:
        """The shown lines as they were."""
        return [line[2:] for line in self.lines if not line.startswith("+ ")]

    @property
    def new(self) -> list[str]:
        """The shown lines with the change."""
        return [line[2:] for line in self.lines if not line.startswith("- ")]

    @property
    def rounds_up(self) -> bool:
        """Tell whether a number is rounded up that was rounded down."""
        new = [line for line in self.lines if line.startswith("+ ")]
        old = [line for line in self.lines if line.startswith("- ")]
        return any("-(-" in line for line in new) and not any("-(-" in e for e in old)

    @property
    def num_removed(self) -> int:
        """Number of lines that go."""
        return sum(line.startswith("- ") for line in self.lines)
