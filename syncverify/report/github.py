"""Annotations: lines by which GitHub shows violations beside the code of a pull request.

A workflow command is one line, `::error file=...,line=...,title=...::message`. GitHub reads `%0A`
as a newline, and counts paths from the root of the checkout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from syncverify.report.checkout import path_in_checkout

_TITLE: Final = "syncverify"


def workflow_command(message: str, file: Path | None = None, number: int = 1) -> str:
    """Return the workflow command of one violation.

    Args:
        message: The violation; lines are kept.
        file: Absolute path of the file to which it points; None without one.
        number: Number of the line, from 1.

    Returns:
        One line. It names no place where the file is not in the checkout.
    """
    path = path_in_checkout(file) if file is not None else ""
    place = f"file={_property(path)},line={number}," if path else ""
    return f"::error {place}title={_TITLE}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
