"""The folder of a recording: one file for the run, and one for each rank.

A file is a line of JSON, a pickled value, and the SHA-256 of both. The line tells the format, the
version, the run and the rank. A file of another format or version is refused before its value is
read, one of another run or rank after that. The value may hold values of this package, sets and
torch's devices alone.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import pickle
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.faces.scripts.recording import Recording
from syncverify.trace.run import RankRun

_FORMAT: Final = "syncverify recording 1"
_DIGEST_BYTES: Final = 32
_RUN_FILE: Final = "run.trace"
# The classes of other packages that a file may name.
_PLAIN: Final = {
    ("builtins", "frozenset"),
    ("builtins", "set"),
    ("torch", "device"),
}


@dataclass(frozen=True, slots=True)
class _Header:
    """The first line of a file."""

    format: str
    syncverify: str
    run: str
    # Rank of the file; None for the file of the whole run.
    rank: int | None = None

    def check(self, path: Path) -> None:
        """Do nothing if this version can read the file.

        Raises:
            UsageError: It cannot.
        """
        if self.format != _FORMAT:
            raise UsageError(f"expected {_FORMAT!r} in {path}, not {self.format!r}")
        if self.syncverify != version("syncverify"):
            raise UsageError(
                f"{path} was recorded by syncverify {self.syncverify}, and this is "
                f"{version('syncverify')}: record the script again"
            )


def write_recording(recording: Recording, folder: Path) -> None:
    """Write a recording, in the place of an earlier one.

    Args:
        folder: Its folder, which is made where it is missing.

    Raises:
        UsageError: The folder cannot be written.
    """
    header = _Header(_FORMAT, version("syncverify"), uuid.uuid4().hex)
    whole = replace(recording, run=replace(recording.run, ranks=()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.trace"):
            old.unlink()
        for rank, part in enumerate(recording.run.ranks):
            _write(_rank_file(folder, rank), replace(header, rank=rank), part.trace)
        _write(folder / _RUN_FILE, header, (whole, recording.num_ranks))
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from error


def read_recording(folder: Path) -> Recording:
    """Read a recording.

    Raises:
        UsageError: A file is missing, was cut, or is of another version or run.
    """
    if not (folder / _RUN_FILE).is_file():
        raise UsageError(
            f"expected the folder of a recording: {folder} has no {_RUN_FILE}"
        )
    header, (whole, num_ranks) = _read(folder / _RUN_FILE)
    ranks = tuple(_traces(folder, header, num_ranks))
    recording: Recording = whole
    return replace(recording, run=replace(recording.run, ranks=ranks))


def _traces(folder: Path, of_run: _Header, num_ranks: int) -> Iterator[RankRun]:
    for rank in range(num_ranks):
        path = _rank_file(folder, rank)
        header, trace = _read(path)
        if (header.run, header.rank) != (of_run.run, rank):
            raise UsageError(
                f"{path} is of another run or rank: {folder / _RUN_FILE} is of run {of_run.run}"
            )
        yield RankRun(trace=trace)


def _rank_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.trace"


def _write(path: Path, header: _Header, value: object) -> None:
    line = json.dumps(asdict(header)).encode() + b"\n"
    content = line + pickle.dumps(value)
    path.write_bytes(content + hashlib.sha256(content).digest())


def _read(path: Path) -> tuple[_Header, Any]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    line, _, value = content.partition(b"\n")
    header = _header(path, line)
    header.check(path)
    if hashlib.sha256(content).digest() != digest:
        raise UsageError(f"{path} was cut or changed: its checksum is wrong")
    return header, _OwnValues(io.BytesIO(value)).load()


def _header(path: Path, line: bytes) -> _Header:
    try:
        return _Header(**json.loads(line))
    except (TypeError, ValueError):
        raise UsageError(f"{path} is no file of a recording") from None


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
