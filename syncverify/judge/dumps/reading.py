"""Files of torch's flight recorder, as pickle or JSON, read into entries.

Note [Pickles of strangers]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
A pickle is a program. One of a stranger could import and call anything, or ask for all memory.
So its operations are looked at before it is loaded: only those that build plain data may occur,
which are dicts, lists, tuples, texts and numbers.
"""

import io
import itertools
import json
import math
import pickle
import pickletools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.scenario.bounds import MAX_RANKS_OF_ANY_BACKEND
from syncverify.trace.source_lines import NoLine, Origin, SourceLine

_MAX_BYTES: Final = 2**28  # a recorder of 100,000 entries with stacks writes 200 MB
_MAX_WORD: Final = 200  # characters of a name
_MAX_DIMS: Final = 64
_RANK: Final = re.compile(r"(\d+)(?:\.\w+)?$")

# fmt: off
_PLAIN: Final = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK",
    "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS",
    "EMPTY_LIST", "LIST", "APPEND", "APPENDS",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "NONE", "NEWTRUE", "NEWFALSE", "FLOAT", "BINFLOAT",
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE",
})
# fmt: on
_STORES: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective of one rank, as the recorder noted it."""

    record: int  # number of the entry on its rank, from 0 at the start of the job
    group: str
    is_default_group: bool  # whether the group has all ranks
    sequence: int  # number of the collective on the group
    operation: str  # with the two ends of a message
    dtype: str
    numel: int  # elements that the rank contributes
    is_done: bool  # whether the collective had ended at the time of the dump
    source: Origin  # innermost line outside of torch


@dataclass(frozen=True, slots=True)
class Dump:
    """The dump of one rank."""

    groups: Mapping[str, tuple[int, ...]]  # global ranks, in group order, by name
    entries: tuple[Entry, ...]  # in the order of the recorder

    @property
    def is_cut(self) -> bool:
        """Tell whether the recorder had dropped its first entries."""
        return bool(self.entries) and self.entries[0].record > 0


class NotPlainError(ValueError):
    """A file holds more than plain data, or is malformed."""


def read_dumps(paths: Sequence[Path]) -> dict[int, Dump]:
    """Return the dumps of files, and of all files in folders, by rank.

    Raises:
        UsageError: A file cannot be read, or is no dump; or two are of one rank.
    """
    dumps: dict[int, Dump] = {}
    for path in itertools.chain.from_iterable(map(_files, paths)):
        rank = _rank(path)
        if rank in dumps:
            raise UsageError(
                f"expected one dump a rank, but {str(path)!r} is a second one of rank {rank}"
            )
        dumps[rank] = _read(path)
    if not dumps:
        raise UsageError("expected a dump in the folder, which holds no file")
    return _with_all_groups(dumps)


def _files(path: Path) -> list[Path]:
    return sorted(filter(Path.is_file, path.iterdir())) if path.is_dir() else [path]


def _rank(path: Path) -> int:
    named = _RANK.search(path.name)
    if named is None:
        raise UsageError(
            f"expected a file name that ends with a rank, such as 'rank_0', got {path.name!r}"
        )
    if int(named[1]) >= MAX_RANKS_OF_ANY_BACKEND:
        raise UsageError(
            f"expected ranks < {MAX_RANKS_OF_ANY_BACKEND}, got {path.name!r}"
        )
    return int(named[1])


def _read(path: Path) -> Dump:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"dump {str(path)!r} is larger than {_MAX_BYTES} bytes")
        values = _values(path.read_bytes())
        listed = _field(values, "entries", list)
        configured = _field(values, "pg_config", dict)
        groups = {
            name: ranks
            for name, config in configured.items()
            if isinstance(name, str) and (ranks := _ranks(config))
        }
        return Dump(groups, tuple(map(_entry, listed)))
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except NotPlainError as error:
        raise UsageError(
            f"{str(path)!r} is no dump of the flight recorder: {error}"
        ) from error


def _values(data: bytes) -> Any:
    """Return plain data of JSON or a pickle, or refuse it: Note [Pickles of strangers]."""
    try:
        if data.lstrip().startswith(b"{"):
            return json.loads(data)
        _check(data)
        return _PlainUnpickler(io.BytesIO(data)).load()
    except NotPlainError:
        raise
    except Exception as error:  # malformed data raises nearly every kind
        raise NotPlainError(f"it is malformed: {error}") from error


def _with_all_groups(dumps: Mapping[int, Dump]) -> dict[int, Dump]:
    """Return dumps with the groups that they name without ranks, as those of gloo do.

    The default group has all ranks. Another one has the ranks with an entry of it, as far as
    the dumps tell.
    """
    unknown: dict[str, set[int]] = {}
    for rank, dump in dumps.items():
        for entry in dump.entries:
            if entry.group not in dump.groups:
                ranks = unknown.setdefault(entry.group, set())
                ranks |= {*dumps} if entry.is_default_group else {rank}
    found = {name: tuple(sorted(ranks)) for name, ranks in unknown.items()}
    ordered = sorted(dumps.items())
    return {r: replace(e, groups={**found, **e.groups}) for r, e in ordered}


def _ranks(config: Any) -> tuple[int, ...]:
    text = _field(config, "ranks", str)
    try:
        ranks = json.loads(text)
    except (ValueError, RecursionError):
        ranks = None
    known = range(MAX_RANKS_OF_ANY_BACKEND)
    if not isinstance(ranks, list) or any(
        type(e) is not int or e not in known for e in ranks
    ):
        raise NotPlainError(f"`ranks` is {text[:60]!r}")
    return tuple(ranks)


def _entry(values: Any) -> Entry:
    group = _field(values, "process_group", (list, tuple))
    if not group or not isinstance(group[0], str):
        raise NotPlainError("`process_group` has no name")
    is_message = _field(values, "is_p2p", bool)
    dtypes = _field(values, "input_dtypes", (list, tuple))
    return Entry(
        record=_field(values, "record_id", int),
        group=group[0],
        is_default_group="default_pg" in group[1:],
        sequence=_field(
            values, "p2p_seq_id" if is_message else "collective_seq_id", int
        ),
        operation=_word(values.get("profiling_name")).partition(":")[2],
        dtype=_word(dtypes[0]) if dtypes else "",
        numel=sum(map(_numel, _field(values, "input_sizes", (list, tuple)))),
        is_done=values.get("state") == "completed" or values.get("retired") is True,
        source=_source(values.get("frames")),
    )


def _numel(size: Any) -> int:
    is_list = isinstance(size, list | tuple) and len(size) <= _MAX_DIMS
    if not is_list or not all(map(_is_number, size)):
        raise NotPlainError("`input_sizes` has no lists of numbers")
    return math.prod(size)


def _source(frames: Any) -> Origin:
    """Return the innermost line outside of torch, such as `train.py:31 in step`."""
    for frame in frames if isinstance(frames, list | tuple) else ():
        path = Path(_word(_field(frame, "filename", str)))
        if "torch" not in path.parts:
            line, name = _field(frame, "line", int), _field(frame, "name", str)
            return SourceLine("/".join(path.parts[-2:]), line, _word(name))
    return NoLine.UNKNOWN


def _word(text: Any) -> str:
    """Return the end of a text, which may be as long as the file; refuse anything else."""
    if not isinstance(text, str):  # not shown: a small file holds huge lists
        raise NotPlainError("it has a name that is no text")
    return text[-_MAX_WORD:]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _field(values: Any, name: str, kind: Any) -> Any:
    """Return a value of a dict; refuse an absent one, another type, too large a number."""
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, kind) or (kind is int and not _is_number(value)):
        raise NotPlainError(f"it has no {name!r} where the recorder writes one")
    return value


class _PlainUnpickler(pickle.Unpickler):
    """A second lock: no name is ever looked up."""

    @override
    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise NotPlainError(f"it asks for {module}.{name}")


def _check(data: bytes) -> None:
    """Refuse operations that do not build plain data, and places that take all memory."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if opcode.name not in _PLAIN:
            raise NotPlainError(f"it has the operation {opcode.name}")
        # The loader allocates memory up to a place that lies beyond the operations so far.
        if opcode.name in _STORES and not 0 <= int(str(argument)) <= number:
            raise NotPlainError(f"it stores a value at place {argument}")
