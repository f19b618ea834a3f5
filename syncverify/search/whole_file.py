"""Files that are written as a whole, or left as they were, and their folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file beside another one, which it replaces when it is complete.

    Raises:
        OSError: The file cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def make_ignored_folder(path: Path) -> None:
    """Make a folder, with a file that makes git ignore it, unless it exists.

    Raises:
        OSError: It cannot be made.
    """
    if not path.exists():
        path.mkdir(parents=True, exist_ok=True)
        (path / ".gitignore").write_text("*\n")
