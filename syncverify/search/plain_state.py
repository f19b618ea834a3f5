"""Plain values that an object holds: read, and set back, without a call of its code.

Note [State without calls]
    A property, a `__len__` or a `__getattr__` of a subject may raise, or change what is looked
    at. So attributes come from the dict and the slots of an object, and elements from the
    methods of the builtin container. Objects are followed whose class is in a file of the
    subject; of others only the class is shown.
"""

import contextlib
import enum
import math
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import torch

from syncverify.plain_text import counted
from syncverify.trace.source_files import is_subject_line

_MAX_SPOTS: Final = 4000
_MAX_PARTS: Final = 6  # of a path
_MAX_ELEMENTS: Final = 64  # of one container
_MAX_CHARACTERS: Final = 60  # of a text or a key
# Larger ones are addresses and times, which differ between two plays.
_LARGE_KEY: Final = 2**20
_LARGE: Final = 2**40

_COUNTED: Final = (bool, int)
_PLAIN: Final = (*_COUNTED, float, str)
_DICTS: Final = (OrderedDict, dict)
_CONTAINERS: Final[tuple[Any, ...]] = (*_DICTS, list, deque, tuple, set, frozenset)
_FIXED: Final = (tuple, frozenset)

# Names that the metaclass of a subject's class cannot replace.
_mro: Final = type.__dict__["__mro__"].__get__
_namespace: Final = type.__dict__["__dict__"].__get__
_name: Final = type.__dict__["__name__"].__get__


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value as a report shows it: in words, a container as `3 elements`."""

    word: str
    size: int | None = None  # number of elements of a container
    is_whole: bool = False  # whether it is a whole number that `word` shows
    is_code: bool = False  # whether `word` is an expression with this value


NOT_SET: Final = ShownValue("not set")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a path, as code has it: `.count`, `['ready']`, `[0]`, a parameter as `[p0]`."""

    kind: Literal["attribute", "key", "index"]
    text: str
    is_any: bool = False  # whether it is one of many: an index, a parameter


class _AtPath:
    """A value at the end of a path."""

    __slots__ = ()
    parts: tuple[Part, ...]

    @property
    def path(self) -> str:
        """The path as a text, such as `self.count[p0]`."""
        return "self" + "".join(part.text for part in self.parts)


@dataclass(slots=True)
class Spot(_AtPath):
    """A value at the end of a path: what `holder` has as attribute, key or index `key`."""

    parts: tuple[Part, ...]
    holder: Any
    key: Any
    value: Any
    # The elements of a container, a pair for each of a dict; None for others.
    elements: list[Any] | None

    @property
    def shown(self) -> ShownValue:
        """The value as a report shows it."""
        if self.elements is None:
            return shown_value(self.value)
        size = len(self.elements)
        return ShownValue(counted(size, "element"), size)

    @property
    def is_counted(self) -> bool:
        """Tell whether the value is a whole number, a flag or a container."""
        return self.elements is not None or type(self.value) in _COUNTED

    @property
    def is_empty(self) -> bool:
        """Tell whether the value is as good as one that is not there."""
        if self.elements is not None or self.value is None:
            return not self.elements
        return type(self.value) in _PLAIN and self.value in (0, "")

    def set_to(self, before: Self | None) -> None:
        """Give the spot the value of before; None takes an attribute away."""
        if before is None:
            if self.parts[-1].kind == "attribute":
                _delete_attribute(self.holder, self.key)
            return
        is_kept = self.elements is not None and before.elements is not None
        target = self.value if is_kept else before.value
        if target is not self.value or _base(target) in _FIXED:
            _put(self.holder, self.key, before.value)
        if before.elements is not None:
            _refill(target, before.elements)


def state_of(owner: object, names: Mapping[int, str]) -> dict[str, Spot]:
    """Return the plain values that an object leads to, by path; see Note [State without calls].

    There is a bounded number of them, short paths first. `names` are names of parameters, by `id`.
    """
    found: dict[str, Spot] = {}
    waiting = deque(_spots_in(owner, (), names))
    while waiting and len(found) < _MAX_SPOTS:
        spot = waiting.popleft()
        found.setdefault(spot.path, spot)
        if len(spot.parts) < _MAX_PARTS:
            waiting.extend(_spots_in(spot.value, spot.parts, names))
    return found


def _spots_in(
    holder: Any, path: tuple[Part, ...], names: Mapping[int, str]
) -> Iterator[Spot]:
    for part, key, value in _held_by(holder, names):
        base = _base(value)
        elements = None if base is None else _elements(value, base)
        yield Spot((*path, part), holder, key, value, elements)


def _held_by(holder: Any, names: Mapping[int, str]) -> Iterator[tuple[Part, Any, Any]]:
    base = _base(holder)
    if base in _DICTS:
        pairs = _elements(holder, base)[:_MAX_ELEMENTS]
        for number, (key, value) in enumerate(pairs):
            yield _key_part(key, number, names), key, value
    elif base in {list, tuple, deque}:
        for number, value in enumerate(_elements(holder, base)[:_MAX_ELEMENTS]):
            yield Part("index", f"[{number}]", is_any=True), number, value
    elif base is None and _is_followed(holder):
        for name, value in _attributes(holder).items():
            yield Part("attribute", f".{name}"), name, value


def _base(value: object) -> Any:
    """Return the builtin container that a value is, None of others."""
    mro = _mro(type(value))
    return next((each for each in _CONTAINERS if each in mro), None)


def _elements(value: Any, base: Any) -> list[Any]:
    return [*dict.items(value)] if base in _DICTS else [*base.__iter__(value)]


def _refill(value: Any, elements: list[Any]) -> None:
    base = _base(value)
    if base not in _FIXED:
        base.clear(value)
        if base in _DICTS:
            for key, each in elements:
                base.__setitem__(value, key, each)
        else:
            (set.update if base is set else base.extend)(value, elements)


def _put(holder: Any, key: Any, value: Any) -> None:
    base = _base(holder)
    if base is None:
        own, slot = _own(holder), _slots(holder).get(key)
        if slot is not None and key not in own:
            slot.__set__(holder, value)
        else:
            dict.__setitem__(own, key, value)
    elif base not in _FIXED:
        base.__setitem__(holder, key, value)


def _is_followed(value: object) -> bool:
    """Tell whether the class of an object is in a file of the subject."""
    mro = _mro(type(value))
    if torch.Tensor in mro or enum.Enum in mro or type in mro:
        return False
    name = _namespace(mro[0]).get("__module__")
    module = sys.modules.get(name) if type(name) is str else None
    if types.ModuleType not in _mro(type(module)):
        return False
    file = vars(module).get("__file__")
    return type(file) is str and is_subject_line(file)


def _attributes(owner: object) -> dict[str, Any]:
    found = {key: value for key, value in _own(owner).items() if type(key) is str}
    for name, slot in _slots(owner).items():
        with contextlib.suppress(AttributeError):  # without a value
            found[name] = slot.__get__(owner)
    return found


def _own(owner: object) -> dict[Any, Any]:
    """Return the dict of an object, an empty one if it has slots alone."""
    for kind in _mro(type(owner)):
        getter = _namespace(kind).get("__dict__")
        if type(getter) is types.GetSetDescriptorType:
            own: dict[Any, Any] = getter.__get__(owner)
            return own
    return {}


def _slots(owner: object) -> dict[str, Any]:
    return {
        name: slot
        for kind in reversed(_mro(type(owner)))
        for name, slot in _namespace(kind).items()
        if type(slot) is types.MemberDescriptorType
    }


def _delete_attribute(owner: object, name: str) -> None:
    own, slot = _own(owner), _slots(owner).get(name)
    if name in own:
        dict.__delitem__(own, name)
    elif slot is not None:
        slot.__delete__(owner)


def _key_part(key: Any, number: int, names: Mapping[int, str]) -> Part:
    """Write a key: a parameter and its `id` by name, what differs between plays by number."""
    if name := names.get(id(key)):
        return Part("key", f"[{name}]", is_any=True)
    if type(key) is int and (name := names.get(key)):
        return Part("key", f"[id({name})]", is_any=True)
    if type(key) is str and len(key) <= _MAX_CHARACTERS:
        return Part("key", f"[{key!r}]", is_any=key in names.values())
    parts = key if type(key) is tuple else (key,)
    text = repr(key) if all(map(_is_short, parts)) else f"key {number}"
    return Part("key", f"[{text}]", is_any=True)


def _is_short(key: object) -> bool:
    if type(key) is int:
        return abs(key) < _LARGE_KEY
    return key is None or type(key) is bool or (type(key) is str and len(key) < 20)


def shown_value(value: Any) -> ShownValue:
    """Return what a report shows of a value that is no container."""
    kind = type(value)
    if kind is int and abs(value) >= _LARGE:
        return ShownValue("a large number")
    if value is None or kind in _PLAIN:
        text = repr(value)
        if len(text) > _MAX_CHARACTERS:
            return ShownValue(text[:_MAX_CHARACTERS] + "...")
        is_code = kind is not float or math.isfinite(value)  # no name `nan`, or `inf`
        return ShownValue(text, is_whole=kind is int, is_code=is_code)
    if enum.Enum in _mro(kind):
        return ShownValue(f"{_name(kind)}.{_own(value).get('_name_')}")
    return ShownValue(f"an object of class {_name(kind)}")


@dataclass(frozen=True, slots=True)
class LeftOver(_AtPath):
    """A value that one step left in a subject: where `step` begins, it is not as for step 0."""

    parts: tuple[Part, ...]
    before: ShownValue
    after: ShownValue
    step: int

    @property
    def pattern(self) -> str:
        """The path with a star for each part that is one of many."""
        texts = ("[*]" if part.is_any else part.text for part in self.parts)
        return "self" + "".join(texts)

    @property
    def is_size(self) -> bool:
        """Tell whether the later value is shown as the number of its elements."""
        return self.after.size is not None

    @property
    def is_number(self) -> bool:
        """Tell whether the later value is a whole number, or the size of a container."""
        return self.is_size or self.after.is_whole

    @property
    def is_grown(self) -> bool:
        """Tell whether it is a size, or the count of one parameter or bucket of many.

        A flag, or a number of the whole synchronizer, may be meant to stay.
        """
        is_of_one = any(part.is_any for part in self.parts)
        return self.is_size or (self.is_number and is_of_one)

    @property
    def text(self) -> str:
        """The fact in one line."""
        verb = "holds" if self.is_size else "is"
        size = self.before.size if self.is_size else None
        past = f"was {self.before.word}" if size is None else f"held {size}"
        return (
            f"{self.path} {verb} {self.after.word} where step {self.step} begins, "
            f"and {past} where step 0 began"
        )
