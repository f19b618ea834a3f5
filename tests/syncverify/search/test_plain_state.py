"""What an object holds is read and set back without a call of its code."""

import enum
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from syncverify.search.plain_state import state_of


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(slots=True)
class Slotted:
    pending: int
    unset: Any


class Owner:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


def words(owner: object) -> dict[str, str]:
    return {path: spot.shown.word for path, spot in state_of(owner, {}).items()}


def set_back(owner: object, before: dict[str, Any]) -> None:
    for path, spot in state_of(owner, {}).items():
        spot.set_to(before.get(path))


def test_plain_values_and_sizes_are_reported_by_path() -> None:
    slotted = Slotted(3, None)
    del slotted.unset
    owner = Owner(
        flag=True,
        name="x",
        tensor=torch.ones(2),
        color=Color.BLUE,
        address=2**47,
        buckets=[slotted, {"ready": {1, 2}}],
    )
    assert words(owner) == {
        "self.flag": "True",
        "self.name": "'x'",
        "self.tensor": "an object of class Tensor",
        "self.color": "Color.BLUE",
        "self.address": "a large number",  # of no word of its own
        "self.buckets": "2 elements",
        "self.buckets[0]": "an object of class Slotted",
        "self.buckets[1]": "1 element",
        "self.buckets[0].pending": "3",
        "self.buckets[1]['ready']": "2 elements",
    }
    owner.me = owner  # type: ignore[attr-defined]
    assert len(words(owner)) <= 4000  # a circle ends


class Refuses(dict[str, int]):
    """Raises wherever Python calls it."""

    def _raise(self, *args: object) -> Any:
        raise AssertionError("called")

    __len__ = __iter__ = __getitem__ = __setitem__ = items = keys = clear = _raise
    __eq__ = __hash__ = __repr__ = __bool__ = __contains__ = _raise  # type: ignore[assignment]


class RefusesToo:
    def __init__(self) -> None:
        object.__setattr__(self, "count", 1)

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("called")

    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError("called")

    @property
    def __class__(self) -> Any:
        raise AssertionError("called")


def test_no_code_of_an_object_runs() -> None:
    held, trap = Refuses(), RefusesToo()
    owner = Owner(held=held, trap=trap)
    before, state = state_of(owner, {}), words(owner)
    dict.__setitem__(held, "a", 1)
    object.__setattr__(trap, "count", 2)
    after = words(owner)
    assert (state["self.held"], after["self.held"]) == ("0 elements", "1 element")
    assert (state["self.trap.count"], after["self.trap.count"]) == ("1", "2")
    set_back(owner, before)
    assert words(owner) == state


def slotted_anew(value: Any) -> None:
    value.pending, value.unset = 2, None


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ({}, lambda value: value.update(a=1)),
        ([], lambda value: value.append(1)),
        (set(), lambda value: value.add(1)),
        (deque([1], maxlen=2), lambda value: value.append(2)),
        (Slotted(0, [1]), slotted_anew),
        (0, None),
        (False, None),
        (Color.RED, None),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_value_is_set_back(value: Any, change: Any) -> None:
    owner = Owner(value=value)
    before, words_before = state_of(owner, {}), words(owner)
    if change is None:
        owner.value = 7  # type: ignore[attr-defined]
    else:
        change(owner.value)  # type: ignore[attr-defined]
    assert words(owner) != words_before
    set_back(owner, before)
    assert words(owner) == words_before
    assert Color.RED.value == 1


def test_an_attribute_that_was_not_there_is_taken_away() -> None:
    owner = Owner(slotted=Slotted(1, 2))
    del owner.slotted.unset  # type: ignore[attr-defined]
    before = state_of(owner, {})
    owner.new = owner.slotted.unset = 1  # type: ignore[attr-defined]
    set_back(owner, before)
    assert words(owner) == {
        "self.slotted": "an object of class Slotted",
        "self.slotted.pending": "1",
    }
