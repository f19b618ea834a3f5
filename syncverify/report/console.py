"""The console and the files that commands write to."""

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.plain_text import plain
from syncverify.search.whole_file import replace_file


class CommandConsole(Console):
    """A console for texts of subjects and files: without markup and control characters."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, quiet=is_quiet)

    @override
    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts in lines of any length, or tables."""
        shown = [plain(each) if isinstance(each, str) else each for each in objects]
        if all(isinstance(each, str) for each in shown):
            options.setdefault("soft_wrap", True)
        super().print(*shown, **options)

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with 1, the code of a violation


def say(line: str) -> None:
    """Print a line on stdout, without control characters."""
    CommandConsole().print(line)


@contextmanager
def kept_output() -> Iterator[None]:
    """Give stdout and stderr back after a block, whatever a program does to them there."""
    with _kept("stdout", 1), _kept("stderr", 2):
        yield


@contextmanager
def _kept(name: str, descriptor: int) -> Iterator[None]:
    """Give one stream back: its object in `sys`, and the descriptor below."""
    before, copy = getattr(sys, name), None
    with contextlib.suppress(OSError):  # closed before: there is nothing to keep
        copy = os.dup(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            getattr(sys, name).flush()  # to where the program wrote it
        if copy is not None:
            os.dup2(copy, descriptor)
            os.close(copy)
        if before is not None and before.closed:
            how = {"encoding": before.encoding, "errors": before.errors}
            before = open(descriptor, "w", closefd=False, **how)  # noqa: SIM115
        setattr(sys, name, before)


def check_files(options: Any, *others: Path | None) -> None:
    """Raise UsageError for a file in a missing folder, before a search is run for it."""
    names = (each.name for each in fields(options) if each.name.endswith("_path"))
    for path in (*(getattr(options, name) for name in names), *others):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"cannot write {str(path)!r}: its folder does not exist")


def write(path: Path, text: str) -> None:
    """Write a text and a last newline, or raise UsageError and leave an earlier file as it is."""
    content = (text + "\n").encode(errors="backslashreplace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a device, such as /dev/stdout
        else:
            replace_file(path.resolve(), content)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error


def write_json(path: Path | None, values: Mapping[str, Any]) -> None:
    """Write plain values as JSON, if there is a path; raise UsageError where that fails."""
    if path is not None:
        write(path, json.dumps(values, indent=2, allow_nan=False))


def json_numbers(value: Any) -> Any:
    """Write `inf`, `-inf` and `nan` as text, for JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: json_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_numbers(entry) for entry in value]
    return value
