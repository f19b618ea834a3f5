"""A training that a module describes: its names are the arguments of `parity`."""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, Final

from syncverify.errors import UsageError
from syncverify.faces.whole_step.training import (
    LOCAL_OVERFLOW,
    NAN,
    OVERFLOW,
    PADDING,
    UNEQUAL_TOKENS,
    Training,
)
from syncverify.judge.whole_step.layout import Layout, all_layouts

_NEEDED: Final = ("build", "parallelize", "batch")
# Names that a module may have beside the fields of a training.
_OTHERS: Final = ("layouts", "steps", "micro_batches")
# The axes of `all:N` where no layout names others.
AXES: Final = ("dp", "tp")
_FEWEST_RANKS: Final = 2
# The name of a training without which it has no such data.
_NEEDED_BY_DATA: Final = {
    UNEQUAL_TOKENS: "weights",
    PADDING: "weights",
    OVERFLOW: "scaler",
    LOCAL_OVERFLOW: "scaler",
    NAN: "scaler",
}
# Names that are easily written for others. Other typing errors are looked for in functions alone.
_SINGULARS: Final = {"layout": "layouts", "micro_batch": "micro_batches"}
# How close a name of a function has to be to count as a typing error.
_LIKENESS: Final = 0.8


@dataclass(frozen=True, slots=True)
class Described:
    """A training with its layouts."""

    training: Training
    layouts: tuple[Layout, ...]
    numbers: tuple[int, ...] = (1,)
    # Words of the data to play beside the batch as it is; none for all.
    data: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise UsageError if the training lacks some of the data."""
        for word in self.data:
            name = _NEEDED_BY_DATA.get(word)
            if name is not None and getattr(self.training, name) is None:
                raise UsageError(
                    f"data {word!r} need `{name}`, which the training lacks"
                )

    def has(self, word: str) -> bool:
        """Tell whether data of this word are played."""
        return not self.data or word in self.data


def described(module: ModuleType) -> Described:
    """Return the training that a module describes; raise UsageError if a name lacks or is wrong."""
    names = [each.name for each in fields(Training)]
    _check(module, [*names, *_OTHERS])
    values = {name: getattr(module, name) for name in names if hasattr(module, name)}
    if hasattr(module, "steps"):
        values["num_steps"] = module.steps
    training = Training(**values)
    return Described(
        training,
        tuple(layouts_of(getattr(module, "layouts", ()))),
        numbers_of(getattr(module, "micro_batches", 1)),
    )


def layouts_of(listed: Any, axes: tuple[str, ...] = AXES) -> list[Layout]:
    """Return one or several layouts; `all:N` or N takes all on `axes` of N ranks at most.

    Raises:
        UsageError: One is wrong.
    """
    found = list[Layout]()
    descriptions = [listed] if isinstance(listed, str | int | Mapping) else listed
    for each in descriptions:
        match each:
            case int():
                found += _all_of(each, axes)
            case str() if each.startswith("all"):
                found += _all_of(_most_ranks(each), axes)
            case str():
                found.append(Layout.parse(each))
            case Mapping():
                found.append(Layout.of(each))
            case _:
                raise UsageError(
                    f"expected a layout such as {{'dp': 2}} or 'dp=2', not {each!r}"
                )
    return [*dict.fromkeys(found)]


def _all_of(ranks: int, axes: tuple[str, ...]) -> list[Layout]:
    if ranks < _FEWEST_RANKS:
        raise UsageError(f"expected 2 ranks or more for all layouts, not {ranks}")
    return all_layouts(axes, ranks)


def numbers_of(listed: Any) -> tuple[int, ...]:
    """Return numbers of micro-batches; raise UsageError if one is no whole number of 1 or more."""
    numbers = (listed,) if isinstance(listed, int) else tuple(listed)
    for each in numbers:
        if type(each) is not int or each < 1:
            raise UsageError(
                f"expected numbers of micro-batches of 1 or more, not {each!r}"
            )
    return numbers


def sizes_of(listed: Iterable[str], training: Training) -> dict[str, int]:
    """Return the sizes that an option lists, such as `layers=1`.

    Raises:
        UsageError: One is no size of 1 or more, or `build` takes none of this name.
    """
    known, sizes = training.all_sizes(), dict[str, int]()
    for each in listed:
        name, _, number = each.partition("=")
        if not number.isdecimal() or not int(number):
            raise UsageError(f"expected a size such as layers=1, not {each!r}")
        if name not in known:
            taken = ", ".join(known) or "none"
            raise UsageError(f"build() takes no size {name!r}; it takes: {taken}")
        sizes[name] = int(number)
    return sizes


def _most_ranks(text: str) -> int:
    _, _, number = text.partition(":")
    if not number.isdecimal():
        raise UsageError(f"expected a number of ranks, such as all:4, not {text!r}")
    return int(number)


def _check(module: ModuleType, names: list[str]) -> None:
    for other, name in _SINGULARS.items():
        if hasattr(module, other) and not hasattr(module, name):
            raise UsageError(f"{module.__name__} has {other!r}: is {name!r} meant?")
    for name, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == module.__name__
        if name in names or not (inspect.isfunction(value) and is_own):
            continue
        near = difflib.get_close_matches(name, names, n=1, cutoff=_LIKENESS)
        if near and not hasattr(module, near[0]):
            raise UsageError(
                f"{module.__name__} has a function {name!r}: is {near[0]!r} meant?"
            )
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise UsageError(
            f"{module.__name__} lacks {missing[0]!r}; a training has `build`, "
            "`parallelize`, `batch`, and `loss` or `step`"
        )
