"""The file of a recording, in a folder.

It is a line of JSON, a pickled value, and the SHA-256 of both. The line tells the format and the
version: a file of another one is refused before its value is read.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from importlib.metadata import version
from pathlib import Path
from typing import Final

from syncverify.errors import UsageError
from syncverify.faces.scripts.recording import Recording
from syncverify.search.whole_file import plain_value

_FORMAT: Final = "syncverify recording 2"
_DIGEST_BYTES: Final = 32
_FILE: Final = "run.trace"


def write_recording(recording: Recording, folder: Path) -> None:
    """Write a recording, in the place of an earlier one.

    Args:
        folder: Its folder, which is made where it is missing.

    Raises:
        UsageError: The folder cannot be written.
    """
    header = {"format": _FORMAT, "syncverify": version("syncverify")}
    content = json.dumps(header).encode() + b"\n" + pickle.dumps(recording)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILE).write_bytes(content + hashlib.sha256(content).digest())
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from error


def read_recording(folder: Path) -> Recording:
    """Read a recording.

    Raises:
        UsageError: The file is missing, was cut, or is of another version.
    """
    path = folder / _FILE
    if not path.is_file():
        raise UsageError(f"expected the folder of a recording: {folder} has no {_FILE}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    line, _, value = content.partition(b"\n")
    _check_header(path, line)
    if hashlib.sha256(content).digest() != digest:
        raise UsageError(f"{path} was cut or changed: its checksum is wrong")
    recording: Recording = plain_value(value)
    return recording


def _check_header(path: Path, line: bytes) -> None:
    """Do nothing if this version can read a file that begins with a line."""
    try:
        header = json.loads(line)
        written, by = header["format"], header["syncverify"]
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{path} is no file of a recording") from None
    if written != _FORMAT:
        raise UsageError(f"expected {_FORMAT!r} in {path}, not {written!r}")
    if by != version("syncverify"):
        raise UsageError(
            f"{path} was recorded by syncverify {by}, and this is "
            f"{version('syncverify')}: record the script again"
        )
