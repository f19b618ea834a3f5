"""The table `[tool.syncverify]` of the nearest pyproject.toml: the defaults of a project.

It has the options of `syncverify run`, by their names without dashes at the start.
"""

import difflib
import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from syncverify.errors import UsageError
from syncverify.scenario.settings import SETTINGS, SettingKind

_NAMES: Final = {
    setting.option: name for name, setting in SETTINGS.items() if setting.is_of_project
}
# Settings that hold for `verify()` in tests as well.
_OF_VERIFY: Final = ("backend", "ranks", "examples", "seed", "schedules")


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A file, and its table of defaults."""

    path: Path  # paths in the table are relative to its folder
    defaults: dict[str, Any] = field(default_factory=dict)  # by the name of an option

    def of_run(self) -> dict[str, Any]:
        """Return the defaults of `syncverify run`, by the names of its parameters."""
        found = {_NAMES[key]: value for key, value in self.defaults.items()}
        found.pop("contract", None)  # a subject's own contract counts more
        if "database" in found:
            found["database"] = str(self.path.parent / found["database"])
        return found

    def of_verify(self) -> dict[str, Any]:
        """Return the defaults of a verification in a test."""
        return {n: self.defaults[n] for n in _OF_VERIFY if n in self.defaults}


def project_file() -> ProjectFile:
    """Read the nearest pyproject.toml, if there is one; a wrong table is a `UsageError`."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return ProjectFile(file, _table(file))
    return ProjectFile(Path.cwd() / "pyproject.toml")


def _table(file: Path) -> dict[str, Any]:
    try:
        table = dict(_parsed(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError, AttributeError) as error:
        raise UsageError(f"{str(file)!r} cannot be read: {error}") from error
    for key, value in table.items():
        _check(key, value, file)
    return table


# Each subject without a contract asks, and a file is parsed slowly.
@lru_cache(maxsize=1)
def _parsed(text: str) -> dict[str, Any]:
    content = tomllib.loads(text)
    table: dict[str, Any] = content.get("tool", {}).get("syncverify", {})
    return table


def _check(key: str, value: Any, file: Path) -> None:
    if key not in _NAMES:
        close = difflib.get_close_matches(key, _NAMES, n=1)
        nearest = f"; the nearest key is {close[0]!r}" if close else ""
        raise UsageError(
            f"{str(file)!r}: unknown key {key!r} in [tool.syncverify]{nearest}"
        )
    words, kinds = _types(SETTINGS[_NAMES[key]].kind)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise UsageError(f"{str(file)!r}: expected {key} as {words}, got {value!r}")


def _types(kind: SettingKind) -> tuple[str, tuple[type, ...]]:
    """Return the type of a value in words, and its Python types."""
    match kind:
        case "integer":
            return "an integer", (int,)
        case "seconds" | "percent":
            return "a number", (int, float)
    return "text", (str,)
