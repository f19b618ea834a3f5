"""Names of parameters for reports: those of equal layers are one name."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple

MAX_NAMES: Final = 6


def grouped_names(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names by the name of their group, such as `blocks.{0-3}.norm.weight`.

    Names are one group if they differ in their first number alone.
    """
    by_layer = dict[tuple[str, str], dict[str, int | None]]()
    for name in names:
        before, number, after = _split(name)
        by_layer.setdefault((before, after), {})[name] = number
    return {
        _joined(before, [*numbers.values()], after): [*numbers]
        for (before, after), numbers in by_layer.items()
    }


def some_names(names: Iterable[str], most: int = MAX_NAMES) -> str:
    """Return the first groups of names, and the number of the other names."""
    groups = grouped_names(names)
    more = sum(len(each) for each in [*groups.values()][most:])
    text = ", ".join([*groups][:most])
    return f"{text}, and {more} more" if more else text


class _SplitName(NamedTuple):
    """A name, cut at its first number; no number and no rest where it has none."""

    before: str
    number: int | None
    after: str


def _split(name: str) -> _SplitName:
    parts = name.split(".")
    place = next((i for i, part in enumerate(parts) if part.isdecimal()), None)
    if place is None:
        return _SplitName(name, None, "")
    before, after = parts[:place], parts[place + 1 :]
    return _SplitName(
        ".".join([*before, ""]), int(parts[place]), ".".join(["", *after])
    )


def _joined(before: str, numbers: list[int | None], after: str) -> str:
    listed = sorted(each for each in numbers if each is not None)
    ranges = ",".join(_ranges(listed))
    return f"{before}{f'{{{ranges}}}' if len(listed) > 1 else ranges}{after}"


def _ranges(numbers: list[int]) -> Iterable[str]:
    """Yield ranges of numbers that follow each other, such as `0-3` and `5`."""
    pairs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    for _, run in pairs:
        listed = [number for _, number in run]
        first, last = listed[0], listed[-1]
        yield str(first) if first == last else f"{first}-{last}"
