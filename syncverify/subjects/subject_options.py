"""Options of a built-in subject, behind its name: `fsdp2:reduce_dtype=float32,shard_size=1`.

The options are a part of the name, so a report, a replay line and a database keep them.
A class takes options if it has these attributes:

* `takes_options`: what each option accepts, by its name;
* `options`: the chosen values, by their names; a class with options is a subclass of the
  original with another value of this attribute;
* `narrowed(contract)`: a class method that returns the contract under these options, if they
  take a promise back;
* `options_in_ranks`: names of options that a world with fewer ranks than their value ignores.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from syncverify.errors import SubjectError, UsageError
from syncverify.scenario.contract import Capabilities


@dataclass(frozen=True, slots=True)
class SubjectOption:
    """An option that a subject takes."""

    values: str  # for messages
    # Turns text into a value that `repr` can write; a ValueError refuses the text.
    parse: Callable[[str], Any]


def one_of(values: Mapping[str, Any]) -> SubjectOption:
    """Return an option of a few words, each with its value."""

    def parse(text: str) -> Any:
        if text not in values:
            raise ValueError(text)
        return values[text]

    return SubjectOption(" or ".join(values), parse)


def split_options(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of a subject without its options, and each option as `name=value`.

    A path has no options: no attribute of a module has "=" in its name.
    """
    base, _, rest = name.partition(":")
    return (base, tuple(rest.split(","))) if "=" in rest else (name, ())


def check_is_no_path(name: str) -> None:
    """Refuse options behind a path, such as `file.py:Class:x=1`, by `SubjectError`."""
    path = name.partition("=")[0].rpartition(":")[0]
    if "=" in name and ("." in path or ":" in path):
        options = name.removeprefix(f"{path}:")
        raise SubjectError(f"subject {path!r} takes no options, got {options!r}")


@functools.cache  # one class for equal options, so that equal subjects are equal
def with_options(original: type, base: str, given: tuple[str, ...]) -> type:
    """Return the class with options, each `name=value`; other options are a `SubjectError`."""
    accepted: Mapping[str, SubjectOption] = getattr(original, "takes_options", {})
    if not accepted:
        raise SubjectError(
            f"subject {base!r} takes no options, got {', '.join(given)!r}"
        )
    options = dict[str, Any]()
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in accepted or name in options:
            raise SubjectError(
                f"subject {base!r}: expected each of the options {', '.join(accepted)} "
                f"at most once, as name=value; got {text!r}"
            )
        try:
            options[name] = accepted[name].parse(value)
        except ValueError:
            raise SubjectError(
                f"subject {base!r}: expected {name} as {accepted[name].values}, got {value!r}"
            ) from None
    place = {"__module__": original.__module__, "__qualname__": original.__qualname__}
    return type(original.__name__, (original,), {**place, "options": options})


def narrowed(factory: Any, contract: Capabilities) -> Capabilities:
    """Return the contract of a subject under its options."""
    if hasattr(factory, "takes_options") and hasattr(factory, "narrowed"):
        contract = factory.narrowed(contract)
    return contract


def check_worlds(factory: Any, name: str, num_ranks: int) -> None:
    """Refuse an option that no world of a search is large enough for, by `UsageError`."""
    for option in getattr(factory, "options_in_ranks", ()):
        value = factory.options.get(option, 1)
        if value > num_ranks:
            raise UsageError(
                f"subject {name!r}: expected ranks >= {value}, got {num_ranks}: "
                f"{option}={value} has no effect on fewer"
            )
