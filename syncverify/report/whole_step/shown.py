"""The numbers and the names that a report prints, such as those of equal layers as one name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import torch

from syncverify.judge.whole_step.differences import ComparedValue, are_close

# 17 digits tell any two numbers of float64 apart.
_FEWEST_DIGITS: Final = 6
_MOST_DIGITS: Final = 17
_NUM_SHOWN: Final = 3
_MAX_RANKS: Final = 4
MAX_NAMES: Final = 6
# A name with a part that is a number, cut at the first such part.
_NUMBERED: Final = re.compile(r"((?:.*?\.)??)(\d+)((?:\..*)?)")


@dataclass(frozen=True, slots=True)
class ShownPart:
    """Some elements of each copy of a value."""

    indices: tuple[int, ...]  # in the flat tensor, in ascending order
    digits: int = _FEWEST_DIGITS  # significant ones

    def text(self, value: torch.Tensor | None) -> str:
        """Return the elements as text, with dots where some are left out."""
        if value is None:
            return "none"
        words, end = list[str](), 0
        for index, element in self.elements(value).items():
            words += ["..."] if index > end else []
            words.append(f"{element:.{self.digits}g}")
            end = index + 1
        words += ["..."] if end < value.numel() else []
        return f"[{', '.join(words)}]"

    def elements(self, value: torch.Tensor) -> dict[int, Any]:
        """Return the elements by index."""
        indices = [each for each in self.indices if each < value.numel()]
        return dict(zip(indices, value.flatten()[indices].tolist(), strict=True))


def shown_part(value: ComparedValue) -> ShownPart:
    """Return the elements of a wrong value to print.

    No two equal texts are printed as right and wrong: the elements include a wrong one of each
    rank, and have as many digits as tell it from the right one.
    """
    wrong, shown = value.wrong_ranks, shown_ranks(value)
    pairs = [(value.got[rank], value.expected[rank]) for rank in shown if rank in wrong]
    firsts = {_first_wrong(*pair, value.tolerance) for pair in pairs}
    start = min((each for each in firsts if each >= _NUM_SHOWN), default=0)
    if all(each < _NUM_SHOWN for each in firsts):
        firsts |= {*range(_NUM_SHOWN)}
    elif len(firsts) < _NUM_SHOWN:
        firsts |= {start + 1, start + 2}
    for digits in range(_FEWEST_DIGITS, _MOST_DIGITS + 1):
        part = ShownPart(tuple(sorted(firsts)), digits)
        if all(part.text(a) != part.text(b) for a, b in pairs):
            break
    return part


def shown_ranks(value: ComparedValue) -> list[int]:
    """Return the ranks whose value is printed: the first ones, and a wrong one among them."""
    listed, wrong = [*value.got][:_MAX_RANKS], value.wrong_ranks[:1]
    return listed if {*wrong} <= {*listed} else [*listed[:-1], *wrong]


def _first_wrong(
    value: torch.Tensor | None, expected: torch.Tensor, tolerance: float
) -> int:
    """Return the index of the first wrong element of a flat tensor; 0 where there is none."""
    if value is None or value.shape != expected.shape:
        return 0
    wrong = (~are_close(value.flatten(), expected.flatten(), tolerance)).nonzero()
    return int(wrong[0]) if len(wrong) else 0


def printed(number: float, *others: float) -> str:
    """Return a number as text that is no text of any of the others that are not equal to it."""
    for digits in range(_FEWEST_DIGITS, _MOST_DIGITS + 1):
        text = f"{number:.{digits}g}"
        if all(text != f"{each:.{digits}g}" for each in others if each != number):
            break
    return text


def grouped_names(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names by the name of their group, such as `blocks.{0-3}.norm.weight`.

    Names are one group if they differ in their first number alone.
    """
    by_layer = dict[tuple[str, str], dict[str, int | None]]()
    for name in names:
        found = _NUMBERED.fullmatch(name)
        place = (found[1], found[3]) if found else (name, "")
        by_layer.setdefault(place, {})[name] = int(found[2]) if found else None
    return {
        f"{before}{_ranges(numbers.values())}{after}": [*numbers]
        for (before, after), numbers in by_layer.items()
    }


def _ranges(numbers: Iterable[int | None]) -> str:
    """Return ranges of numbers that follow each other, such as `{0-3,5}`; one number alone."""
    listed = sorted(each for each in numbers if each is not None)
    ranges = list[str]()
    for _, run in groupby(enumerate(listed), key=lambda pair: pair[1] - pair[0]):
        first, *others = (number for _, number in run)
        ranges.append(f"{first}-{others[-1]}" if others else f"{first}")
    text = ",".join(ranges)
    return f"{{{text}}}" if len(listed) > 1 else text


def some_names(names: Iterable[str], most: int = MAX_NAMES) -> str:
    """Return the first groups of names, and the number of the other names."""
    groups = grouped_names(names)
    more = sum(len(each) for each in [*groups.values()][most:])
    text = ", ".join([*groups][:most])
    return f"{text}, and {more} more" if more else text
