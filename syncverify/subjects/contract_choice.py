"""The contract of a subject: by name, by file, by pyproject.toml, or the subject's own."""

import tomllib
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

from syncverify.errors import UsageError
from syncverify.scenario.contract import FEATURE_FIELDS, Capabilities, ContractChoice
from syncverify.scenario.contract_file import contract_of, read_contract
from syncverify.scenario.feature_table import ALL_OPTIONAL_TOPICS
from syncverify.subjects.project_file import project_file

# Contracts that name features alone: all else stays as the subject has it.
_OF_FEATURES: Final = {"plain": frozenset[str](), "everything": ALL_OPTIONAL_TOPICS}
CONTRACT_FOLDER: Final = resources.files(__package__) / "contracts"


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
