"""Values of a run as text: equal in two processes, and without what code may reword.

Left out are sentences, paths and numbers of lines, and addresses. A line is the function that has it.
"""

import functools
import hashlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Final

import torch

from syncverify.trace.source_lines import SourceLine

# Fields of sentences, of names in reports, and of the lines behind a line.
_WORDS: Final = frozenset(
    {"summary", "details", "named", "error", "callers", "group_name"}
)
# Fields with sentences: their number counts.
_COUNTED: Final = frozenset({"settings", "thread_settings", "reseeded", "repeating"})
_SHOWN: Final = 32  # elements of a tensor, or bytes


def plain(value: Any, without: Set[str] = frozenset()) -> str:
    """Return a value as one line.

    Args:
        value: A dataclass, a collection, a tensor, or a value that `repr` writes alike.
        without: Names of fields to leave out as well.

    Returns:
        The line; fields of a dataclass with their defaults are not in it.
    """
    match value:
        case SourceLine():
            return f"in {value.function or 'the file'}"
        case Enum():
            return value.name
        case torch.Tensor():
            return _tensor(value)
        case bytes():
            return f"{len(value)} bytes {value[:_SHOWN].hex()} {digest(value.hex())}"
        case Mapping():
            pairs = sorted((str(k), plain(v, without)) for k, v in value.items())
            return f"{{{', '.join(f'{k}: {text}' for k, text in pairs)}}}"
        case Set():
            return f"{{{', '.join(sorted(plain(each, without) for each in value))}}}"
        case tuple() | list():
            return f"[{', '.join(plain(each, without) for each in value)}]"
    return _fields(value, without) if is_dataclass(value) else repr(value)


def digest(text: str) -> str:
    """Return 12 digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def lines(values: Iterable[Any], without: Set[str] = frozenset()) -> list[str]:
    """Return values as lines."""
    return [plain(each, without) for each in values]


def _fields(value: Any, without: Set[str]) -> str:
    """Return a dataclass with those of its fields that have another value than by default."""
    shown = list[str]()
    for name, default in _defaults(value.__class__).items():
        if name not in _WORDS | without:
            text = _field(name, getattr(value, name), without)
            shown += [f"{name}={text}"] if text != default else []
    return f"{type(value).__name__}({', '.join(shown)})"


@functools.cache
def _defaults(kind: Any) -> Mapping[str, str | None]:
    """Return the names of the fields of a dataclass, each with the text of its default."""
    made = (
        (
            each.name,
            each.default if each.default_factory is MISSING else each.default_factory(),
        )
        for each in fields(kind)
    )
    return {k: None if v is MISSING else _field(k, v, frozenset()) for k, v in made}


def _field(name: str, value: Any, without: Set[str]) -> str:
    if name in _COUNTED:
        return str(len(value))
    if name == "misfits":  # causes, each with a sentence
        causes = {key: [cause for cause, _ in pairs] for key, pairs in value.items()}
        return plain(causes)
    return plain(value, without)


def _tensor(value: torch.Tensor) -> str:
    """Return dtype, shape and elements; of a long tensor the first ones, and a digest of all."""
    elements = value.detach().reshape(-1).tolist()
    shown = f"{value.dtype}{[*value.shape]} {elements[:_SHOWN]}"
    return shown if len(elements) <= _SHOWN else f"{shown} {digest(str(elements))}"
