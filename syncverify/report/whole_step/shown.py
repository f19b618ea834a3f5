"""The elements of a wrong value that a report prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

from syncverify.report.whole_step.printed import FEWEST_DIGITS, MOST_DIGITS
from syncverify.whole_step.differences import ComparedValue

_NUM_SHOWN: Final = 3
_MAX_RANKS: Final = 4


@dataclass(frozen=True, slots=True)
class ShownPart:
    """Some elements of each copy of a value.

    Attributes:
        indices: Indices of the printed elements in the flat tensor, in ascending order.
        digits: Number of significant digits.
    """

    indices: tuple[int, ...]
    digits: int = FEWEST_DIGITS

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
    indices = tuple(sorted(firsts))
    parts = (ShownPart(indices, digits) for digits in range(FEWEST_DIGITS, MOST_DIGITS))
    apart = (e for e in parts if all(e.text(a) != e.text(b) for a, b in pairs))
    return next(apart, ShownPart(indices, MOST_DIGITS))


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
    ours, theirs = value.double().flatten(), expected.double().flatten()
    is_right = (ours - theirs).abs() <= tolerance
    is_right |= (ours == theirs) | (ours.isnan() & theirs.isnan())
    wrong = (~is_right).nonzero()
    return int(wrong[0]) if len(wrong) else 0
