"""Files of torch's flight recorder, as pickle or JSON, read into entries."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from syncverify.errors import UsageError
from syncverify.judge.dumps.plain_pickle import NotPlainError, loads
from syncverify.scenario.bounds import MAX_RANKS_OF_ANY_BACKEND
from syncverify.trace.source_lines import NoLine, Origin, SourceLine

_MAX_BYTES: Final = 2**28  # a recorder of 100,000 entries with stacks writes 200 MB
_MAX_WORD: Final = 200  # characters of a name
_MAX_DIMS: Final = 64
_RANK: Final = re.compile(r"(\d+)(?:\.\w+)?$")


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective of one rank, as the recorder noted it.

    Attributes:
        record: Number of the entry on its rank, from 0 at the start of the job.
        group: Name of the process group.
        is_default_group: Whether that is the group of all ranks.
        sequence: Number of the collective on the group.
        operation: Name of the operation, with the two ends of a message.
        numel: Elements that the rank contributes.
        is_done: Whether the collective had ended at the time of the dump.
        source: Innermost line outside of torch.
    """

    record: int
    group: str
    is_default_group: bool
    sequence: int
    operation: str
    dtype: str
    numel: int
    is_done: bool
    source: Origin


@dataclass(frozen=True, slots=True)
class Dump:
    """The dump of one rank.

    Attributes:
        rank: Global rank, from the name of the file.
        groups: Global ranks of process groups, in group order, by name.
        entries: Entries in the order of the recorder.
    """

    rank: int
    groups: Mapping[str, tuple[int, ...]]
    entries: tuple[Entry, ...]

    @property
    def is_cut(self) -> bool:
        """Tell whether the recorder had dropped its first entries."""
        return bool(self.entries) and self.entries[0].record > 0


def read_dumps(paths: Sequence[Path]) -> dict[int, Dump]:
    """Return the dumps of files, and of all files in folders, by rank.

    Raises:
        UsageError: A file cannot be read, or is no dump; or two are of one rank.
    """
    dumps: dict[int, Dump] = {}
    for path in _files(paths):
        dump = _read(path)
        if dump.rank in dumps:
            raise UsageError(
                f"expected one dump a rank, but {str(path)!r} is a second one of rank "
                f"{dump.rank}"
            )
        dumps[dump.rank] = dump
    if not dumps:
        raise UsageError("expected a dump in the folder, which holds no file")
    return _with_all_groups(dumps)


def _files(paths: Sequence[Path]) -> list[Path]:
    found = list[Path]()
    for path in paths:
        if path.is_dir():
            found += sorted(each for each in path.iterdir() if each.is_file())
        else:
            found.append(path)
    return found


def _read(path: Path) -> Dump:
    named = _RANK.search(path.name)
    if named is None:
        raise UsageError(
            f"expected a file name that ends with a rank, such as 'rank_0', got {path.name!r}"
        )
    rank = int(named[1])
    if rank >= MAX_RANKS_OF_ANY_BACKEND:
        raise UsageError(
            f"expected ranks < {MAX_RANKS_OF_ANY_BACKEND}, got {path.name!r}"
        )
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"dump {str(path)!r} is larger than {_MAX_BYTES} bytes")
        return _dump(rank, _values(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (NotPlainError, _MalformedError) as error:
        raise UsageError(
            f"{str(path)!r} is no dump of the flight recorder: {error}"
        ) from error


class _MalformedError(ValueError):
    """A value of a dump is not what the recorder writes."""


def _values(data: bytes) -> Any:
    if not data.lstrip().startswith(b"{"):
        return loads(data)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _MalformedError(f"it is malformed: {error}") from error


def _dump(rank: int, values: Any) -> Dump:
    listed = _field(values, "entries", list)
    configured = _field(values, "pg_config", dict)
    groups = {
        name: ranks
        for name, config in configured.items()
        if isinstance(name, str) and (ranks := _ranks(config))
    }
    return Dump(rank, groups, tuple(map(_entry, listed)))


def _with_all_groups(dumps: Mapping[int, Dump]) -> dict[int, Dump]:
    """Return dumps with the groups that they name without ranks, as those of gloo do.

    The default group has all ranks. Another one has the ranks with an entry of it, as far as
    the dumps tell.
    """
    unknown: dict[str, set[int]] = {}
    for dump in dumps.values():
        for entry in dump.entries:
            if entry.group not in dump.groups:
                ranks = unknown.setdefault(entry.group, set())
                ranks |= {*dumps} if entry.is_default_group else {dump.rank}
    found = {name: tuple(sorted(ranks)) for name, ranks in unknown.items()}
    return {
        rank: replace(dump, groups={**found, **dump.groups})
        for rank, dump in sorted(dumps.items())
    }


def _ranks(config: Any) -> tuple[int, ...]:
    text = _field(config, "ranks", str)
    try:
        ranks = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _MalformedError(f"`ranks` is {text[:60]!r}") from error
    if not isinstance(ranks, list) or not all(map(_is_rank, ranks)):
        raise _MalformedError(f"`ranks` is {text[:60]!r}")
    return tuple(ranks)


def _is_rank(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_RANKS_OF_ANY_BACKEND


def _entry(values: Any) -> Entry:
    group = _field(values, "process_group", (list, tuple))
    if not group or not isinstance(group[0], str):
        raise _MalformedError("`process_group` has no name")
    is_message = _field(values, "is_p2p", bool)
    sequence = _field(values, "p2p_seq_id" if is_message else "collective_seq_id", int)
    sizes = _field(values, "input_sizes", (list, tuple))
    dtypes = _field(values, "input_dtypes", (list, tuple))
    return Entry(
        record=_field(values, "record_id", int),
        group=group[0],
        is_default_group="default_pg" in group[1:],
        sequence=sequence,
        operation=_word(values.get("profiling_name")).partition(":")[2],
        dtype=_word(dtypes[0]) if dtypes else "",
        numel=sum(map(_numel, sizes)),
        is_done=values.get("state") == "completed" or values.get("retired") is True,
        source=_source(values.get("frames")),
    )


def _numel(size: Any) -> int:
    is_list = isinstance(size, list | tuple) and len(size) <= _MAX_DIMS
    if not is_list or not all(map(_is_number, size)):
        raise _MalformedError("`input_sizes` has no lists of numbers")
    return math.prod(size)


def _source(frames: Any) -> Origin:
    """Return the innermost line outside of torch, such as `train.py:31 in step`."""
    if not isinstance(frames, list | tuple):
        return NoLine.UNKNOWN
    for frame in frames:
        path = Path(_word(_field(frame, "filename", str)))
        if "torch" not in path.parts:
            line, name = _field(frame, "line", int), _field(frame, "name", str)
            return SourceLine("/".join(path.parts[-2:]), line, _word(name))
    return NoLine.UNKNOWN


def _word(text: Any) -> str:
    """Return the end of a text, which may be as long as the file.

    Raises:
        _MalformedError: It is no text. Lists are not shown: a small file holds huge ones.
    """
    if not isinstance(text, str):
        raise _MalformedError("it has a name that is no text")
    return text[-_MAX_WORD:]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _field(values: Any, name: str, kind: Any) -> Any:
    """Return a value of a dict of a dump.

    Raises:
        _MalformedError: It is absent, or of another type, or too large a number.
    """
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, kind) or (kind is int and not _is_number(value)):
        raise _MalformedError(f"it has no {name!r} where the recorder writes one")
    return value
