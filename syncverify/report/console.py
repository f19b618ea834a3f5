"""What commands print to, and the files that they write."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from typing_extensions import override

from syncverify.errors import UsageError


class CommandConsole(Console):
    """A console that lets a broken pipe be seen."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would leave with the code of a violation


def check_folder(path: Path | None) -> None:
    """Refuse a file whose folder does not exist, before anything is played for it.

    Args:
        path: The file; None asks for none.

    Raises:
        UsageError: It cannot be written.
    """
    if path is not None and not path.absolute().parent.is_dir():
        raise UsageError(f"cannot write {str(path)!r}: its folder does not exist")


def write(path: Path, text: str) -> None:
    """Write a file.

    Args:
        path: The file.
        text: What it is to hold.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error
