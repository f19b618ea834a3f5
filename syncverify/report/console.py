"""The console and the files that commands write to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from typing_extensions import override

from syncverify.errors import UsageError


class CommandConsole(Console):
    """A console that raises BrokenPipeError, for the caller to handle."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with 1, the code of a violation


def check_folder(path: Path | None) -> None:
    """Raise UsageError for a file in a missing folder, before a search is run for it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise UsageError(f"cannot write {str(path)!r}: its folder does not exist")


def write(path: Path, text: str) -> None:
    """Write a text and a last newline; raise UsageError where that fails."""
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error


def write_json(path: Path | None, values: Mapping[str, Any]) -> None:
    """Write plain values as JSON, if there is a path; raise UsageError where that fails."""
    if path is not None:
        write(path, json.dumps(values, indent=2, allow_nan=False))
