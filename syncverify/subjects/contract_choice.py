"""The contract of a subject: by name, by file, by pyproject.toml, or the subject's own.

A key of a TOML file is a field of `Capabilities`; a key that is missing leaves the field as the
subject has it. There are two exceptions. A file without `table_version` means version 1. A file
with a list of features replaces all features beyond plain steps that the subject has in any of
the four lists. Features are lists of `topic=value`, one on a line, so that the difference of two
files reads as a release note.
"""

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

from syncverify.errors import UsageError
from syncverify.scenario.contract import (
    FEATURE_FIELDS,
    PLAIN_CONTRACT,
    Capabilities,
    ContractChoice,
)
from syncverify.scenario.feature_table import ALL_OPTIONAL_TOPICS
from syncverify.subjects.project_file import project_file

# Contracts that name features alone: all else stays as the subject has it.
_OF_FEATURES: Final = {"plain": frozenset[str](), "everything": ALL_OPTIONAL_TOPICS}
CONTRACT_FOLDER: Final = resources.files(__package__) / "contracts"
_FIRST_VERSION: Final = 1
_DEFAULTS: Final = asdict(PLAIN_CONTRACT)
# What lists contain, by key.
_ENTRIES: Final = {
    **dict.fromkeys(FEATURE_FIELDS, "features such as 'event=tail'"),
    "layers": "'module:attribute'",
}


def chosen_contract(choice: ContractChoice, own: Capabilities) -> Capabilities:
    """Find the contract that a user chose by a name, a file or the contract itself.

    The fields of the subject's own contract count where the choice names none.

    Raises:
        UsageError: There is no contract of that name, and no file; or the file is refused.
    """
    if isinstance(choice, Capabilities):
        return choice
    if isinstance(choice, str) and choice in _OF_FEATURES:
        return replace(own.plain(), features=_OF_FEATURES[choice])
    if isinstance(choice, str) and choice in contract_names():
        return built_in_contract(choice, own)
    path = Path(choice)
    if not choice or (not path.suffix and not path.exists()):
        raise UsageError(
            f"unknown contract {str(choice)!r}: expected one of "
            f"{', '.join(contract_names())}, or a TOML file"
        )
    if path.exists() and not path.is_file():  # a pipe may never end
        raise UsageError(f"the contract {str(path)!r} is no regular file")
    return read_contract(path, own)


def contract_names() -> list[str]:
    """List the names of contracts: `plain`, `everything`, and those of built-in subjects."""
    files = (entry.name for entry in CONTRACT_FOLDER.iterdir())
    names = (Path(name).stem for name in files if not name.startswith("_"))
    return [*_OF_FEATURES, *sorted(names)]


def built_in_contract(name: str, own: Capabilities) -> Capabilities:
    """Return the contract of a built-in subject, from its file; `own` if there is none."""
    if not (CONTRACT_FOLDER / f"{name}.toml").is_file():
        return own
    return contract_of(_entries(name), own, place=name)


def _entries(name: str) -> dict[str, Any]:
    """Read a file of the folder.

    `like` names another one, whose entries count too, but for the features in `without`.
    """
    entries = tomllib.loads((CONTRACT_FOLDER / f"{name}.toml").read_text())
    if "like" not in entries:
        return entries
    base, without = _entries(entries.pop("like")), entries.pop("without", ())
    for field in base.keys() & FEATURE_FIELDS:
        kept = (each for each in base[field] if each not in without)
        entries[field] = [*kept, *entries.get(field, ())]
    return base | entries


def contract_of_project() -> str | Path | None:
    """Read `contract`, a name or a file, of the table that `project_file` finds."""
    project = project_file()
    choice: str | None = project.defaults.get("contract")
    if choice is None or choice in contract_names():
        return choice
    return project.path.parent / choice


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
        return replace(own, **fields)
    except UsageError as error:
        raise UsageError(f"contract {place!r}: {error}") from None


def contract_text(capabilities: Capabilities, *, comments: Mapping[str, str]) -> str:
    """Return the content of a contract file.

    The version, fields with a comment, and those that differ from the plain contract are written.
    `comments` has the text of comments, by the field above which they stand; "" is the head of
    the file.
    """
    lines = list[str]()
    for key, value in {"": None, **asdict(capabilities)}.items():
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
