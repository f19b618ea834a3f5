"""The file of a recording, in a folder.

It is a line of JSON, a pickled value, and the SHA-256 of both. The line tells the format and the
version: a file of another one is refused before its value is read. The value may hold values of this
package, sets and torch's devices alone.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import pickle
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.faces.scripts.recording import Recording

_FORMAT: Final = "syncverify recording 2"
_DIGEST_BYTES: Final = 32
_FILE: Final = "run.trace"
# The classes of other packages that a file may name.
_PLAIN: Final = {
    ("builtins", "frozenset"),
    ("builtins", "set"),
    ("torch", "device"),
}


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
    recording: Recording = _OwnValues(io.BytesIO(value)).load()
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


class _OwnValues(pickle.Unpickler):
    """Reads values of this package, sets and devices alone: a file may come from anywhere."""

    @override
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return getattr(importlib.import_module(module), name)
        if module.startswith("syncverify."):
            found = getattr(importlib.import_module(module), name, None)
            if isinstance(found, type):
                return found
        raise UsageError(f"a recording holds no {module}.{name}")
