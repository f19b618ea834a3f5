"""Contracts as TOML files: read one, write one.

A key of the file is a field of `Capabilities`; a key that is missing leaves the field as the
subject has it. There are two exceptions. A file without `table_version` means version 1. A file
with a list of features replaces all features beyond plain steps that the subject has in any of
the four lists. Features are lists of `topic=value`, one on a line, so that the difference of two
files reads as a release note.
"""

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from syncverify.errors import UsageError
from syncverify.scenario.contract import FEATURE_FIELDS, PLAIN_CONTRACT, Capabilities

_FIRST_VERSION: Final = 1
_DEFAULTS: Final = dataclasses.asdict(PLAIN_CONTRACT)
# What lists contain, by key.
_ENTRIES: Final = {
    **dict.fromkeys(FEATURE_FIELDS, "features such as 'event=tail'"),
    "layers": "'module:attribute'",
}


def read_contract(path: Path, own: Capabilities) -> Capabilities:
    """Read a contract as `contract_of` does; a file that is no TOML is a `UsageError`."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"contract {str(path)!r} cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"contract {str(path)!r} is no TOML: {error}") from error
    return contract_of(content, own, place=str(path))


def contract_of(
    content: Mapping[str, Any], own: Capabilities, *, place: str
) -> Capabilities:
    """Make a contract of the entries of a TOML file, by key; `place` names the file in errors.

    The fields of `own` count where the file has no key. Of its features, only values of plain
    steps count beside a list of features in the file.

    Raises:
        UsageError: A key or a value is of the wrong kind.
    """
    for key, value in content.items():
        _check(key, value, place)
    if not content.keys().isdisjoint(FEATURE_FIELDS):
        own = own.plain()
    # A file without a version may be older than the versions.
    fields: dict[str, Any] = {"table_version": _FIRST_VERSION, **content}
    try:
        return dataclasses.replace(own, **fields)
    except UsageError as error:
        raise UsageError(f"contract {place!r}: {error}") from None


def contract_text(capabilities: Capabilities, *, comments: Mapping[str, str]) -> str:
    """Return the content of a contract file.

    The version, fields with a comment, and those that differ from the plain contract are written.
    `comments` has the text of comments, by the field above which they stand; "" is the head of
    the file.
    """
    lines = list[str]()
    for key, value in {"": None, **dataclasses.asdict(capabilities)}.items():
        if key in {*comments, "table_version"} or (key and value != _DEFAULTS[key]):
            text = comments.get(key, "")
            lines += [f"# {line}".rstrip() for line in text.splitlines()]
            if key in FEATURE_FIELDS:
                names = (f"    {json.dumps(name)}," for name in sorted(value))
                lines += [f"{key} = [", *names, "]"]
            elif key:
                lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def _check(key: str, value: Any, place: str) -> None:
    """Refuse unknown keys, and lists whose elements are no text; `Capabilities` checks the rest."""
    if key not in _DEFAULTS:
        close = difflib.get_close_matches(key, _DEFAULTS, n=1)
        nearest = f"; the nearest key is {close[0]!r}" if close else ""
        raise UsageError(f"contract {place!r}: unknown key {key!r}{nearest}")
    entries = value if isinstance(value, list) else [None]
    if key in _ENTRIES and not all(isinstance(entry, str) for entry in entries):
        raise UsageError(
            f"contract {place!r}: expected {key} as a list of {_ENTRIES[key]}, got {value!r}"
        )
