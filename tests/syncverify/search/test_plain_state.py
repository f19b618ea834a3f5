"""What an object holds is read and set back without a call of its code."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, defaultdict, deque
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


def words(owner: object, names: dict[int, str] | None = None) -> dict[str, str]:
    return {
        path: spot.shown.word for path, spot in state_of(owner, names or {}).items()
    }


def test_plain_values_and_sizes_are_reported_by_path() -> None:
    slotted = Slotted(3, None)
    del slotted.unset
    owner = Owner(
        flag=True,
        name="x",
        rate=0.5,
        missing=None,
        tensor=torch.ones(2),
        color=Color.BLUE,
        buckets=[slotted, {"ready": {1, 2}}],
        pair=(1,),
        queue=deque([0]),
    )
    assert words(owner) == {
        "self.flag": "True",
        "self.name": "'x'",
        "self.rate": "0.5",
        "self.missing": "None",
        "self.tensor": "an object of class Tensor",
        "self.color": "Color.BLUE",
        "self.buckets": "2 elements",
        "self.pair": "1 element",
        "self.queue": "1 element",
        "self.buckets[0]": "an object of class Slotted",
        "self.buckets[1]": "1 element",
        "self.pair[0]": "1",
        "self.queue[0]": "0",
        "self.buckets[0].pending": "3",
        "self.buckets[1]['ready']": "2 elements",
    }


def test_a_key_that_is_a_parameter_has_its_name() -> None:
    first, second, other = torch.ones(1), torch.ones(1), torch.ones(1)
    names = {id(first): "p0", id(second): "p1"}
    owner = Owner(
        count={first: 1, id(second): 2, "p0": 3, other: 4, (1, "a"): 5, id(other): 6}
    )
    spots = state_of(owner, names)
    assert [*spots] == [
        "self.count",
        "self.count[p0]",
        "self.count[id(p1)]",
        "self.count['p0']",
        "self.count[key 3]",
        "self.count[(1, 'a')]",
        "self.count[key 5]",
    ]
    assert all(spot.parts[-1].is_any for spot in [*spots.values()][1:])


def test_an_address_has_no_word_of_its_own() -> None:
    assert words(Owner(address=2**47)) == {"self.address": "a large number"}


def test_cycles_and_long_lists_end() -> None:
    owner = Owner(many=[0] * 10_000)
    owner.me = owner  # type: ignore[attr-defined]
    found = words(owner)
    assert found["self.many"] == "10000 elements"
    assert "self.many[64]" not in found
    # The largest number of spots of an object.
    assert len(found) <= 4000


class Refuses(dict[str, int]):
    """Raises wherever Python calls it."""

    __slots__ = ("slot",)

    def _raise(self, *args: object) -> Any:
        raise AssertionError("called")

    __len__ = __iter__ = __getitem__ = __setitem__ = items = keys = clear = _raise
    __eq__ = __hash__ = __repr__ = __bool__ = __contains__ = _raise  # type: ignore[assignment]


class HasDict:
    pass


class RefusesToo(HasDict):
    def __init__(self) -> None:
        object.__setattr__(self, "count", 1)

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("called")

    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError("called")

    @property
    def __class__(self) -> Any:
        raise AssertionError("called")

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise AssertionError("called")

    @property
    def trap(self) -> int:
        raise AssertionError("called")


def test_no_code_of_an_object_runs() -> None:
    held, trap = Refuses(), RefusesToo()
    owner = Owner(held=held, trap=trap)
    before, state = state_of(owner, {}), words(owner)
    dict.__setitem__(held, "a", 1)
    object.__setattr__(trap, "count", 2)
    after = state_of(owner, {})
    assert (state["self.held"], after["self.held"].shown.word) == (
        "0 elements",
        "1 element",
    )
    assert (state["self.trap.count"], after["self.trap.count"].shown.word) == ("1", "2")
    for path, spot in after.items():
        spot.set_to(before.get(path))
    assert words(owner) == state


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        set(),
        deque([1], maxlen=2),
        defaultdict(int),
        Counter(),
        OrderedDict(),
        (),
        0,
        None,
        False,
        Color.RED,
        Slotted(0, [1]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_value_is_set_back(value: Any) -> None:
    owner = Owner(value=value)
    before = state_of(owner, {})
    words_before = words(owner)
    _change(owner)
    assert words(owner) != words_before
    for path, spot in state_of(owner, {}).items():
        spot.set_to(before.get(path))
    assert words(owner) == words_before
    assert Color.RED.value == 1


def _change(owner: Any) -> None:
    match owner.value:
        case dict():
            owner.value["a"] = 1
        case list():
            owner.value.append(1)
        case set():
            owner.value.add(1)
        case deque():
            owner.value.append(2)
        case Slotted():
            owner.value.pending = 2
            owner.value.unset = None
        case Color():
            owner.value = Color.BLUE
        case tuple():
            owner.value = (1,)
        case _:
            owner.value = 7


def test_an_attribute_that_was_not_there_is_taken_away() -> None:
    owner = Owner(slotted=Slotted(1, 2))
    del owner.slotted.unset  # type: ignore[attr-defined]
    before = state_of(owner, {})
    owner.new = 1  # type: ignore[attr-defined]
    owner.slotted.unset = 2  # type: ignore[attr-defined]
    for path, spot in state_of(owner, {}).items():
        spot.set_to(before.get(path))
    assert words(owner) == {
        "self.slotted": "an object of class Slotted",
        "self.slotted.pending": "1",
    }
