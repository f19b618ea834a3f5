"""The shards of a search that were played, in a file that is never half written."""

import dataclasses
import hashlib
import pickle
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

from filelock import FileLock, Timeout

from syncverify.errors import UsageError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.settings import Settings
from syncverify.scenario.small_scope import SmallScope
from syncverify.search.judge import Identity
from syncverify.search.line_probe import modules_of
from syncverify.search.result import SearchResult, merged
from syncverify.search.shards import size_of_shards
from syncverify.search.violation_database import is_server
from syncverify.search.whole_file import make_ignored_folder, plain_value, replace_file
from syncverify.subjects.subject import Subject

_VERSION: Final = 2
DEFAULT_FOLDER: Final = Path(".syncverify")
# A file of a long search has a megabyte: it is written for a twentieth of the time at most.
_PAUSE_A_WRITE: Final = 20


@dataclass(frozen=True, slots=True)
class DoneShards:
    """The shards of a search that were played: the merged result of the first ones, and others."""

    result: SearchResult
    num_merged: int = 0
    # The number of the shard that has met a violation first, and the schedules drawn there.
    places: Mapping[Identity, tuple[int, Mapping[bytes, int]]] = field(
        default_factory=dict
    )
    # Results of later shards, by number: see Note [Merged in the order of shards].
    waiting: Mapping[int, SearchResult] = field(default_factory=dict)
    saved_before: frozenset[str] = frozenset()  # tokens that earlier searches had saved

    def has(self, number: int) -> bool:
        """Tell whether a shard was played."""
        return number < self.num_merged or number in self.waiting

    def with_shard(self, number: int, result: SearchResult) -> Self:
        """Return the shards that were played, and one more."""
        waiting, end, ready = {**self.waiting, number: result}, self.num_merged, {}
        while end in waiting:
            ready[end] = waiting.pop(end)
            end += 1
        more = self._merged_with(ready)
        return dataclasses.replace(more, num_merged=end, waiting=waiting)

    def with_all(self, begun: Mapping[int, SearchResult]) -> Self:
        """Return all results, also of shards after a missing one and of those that ended early."""
        return self._merged_with({**self.waiting, **begun})

    def _merged_with(self, results: Mapping[int, SearchResult]) -> Self:
        ordered = sorted(results.items())
        places = {
            identity: (number, result.draws)
            for number, result in reversed(ordered)
            for identity in result.met.own
        }
        return dataclasses.replace(
            self,
            result=merged([self.result, *(result for _, result in ordered)]),
            places={**places, **self.places},
        )


class CampaignFile:
    """The file of one search, which one process at a time may use.

    The key is a digest of all that decides the verdicts: sources, contract, versions.
    """

    done: DoneShards

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self._start = f"syncverify {_VERSION} {key} ".encode()
        self._lock = FileLock(path.with_suffix(".lock"), timeout=0)
        self._next_write = 0.0
        self._written: DoneShards | None = None

    @classmethod
    def of(cls, subject: Subject, settings: Settings) -> Self:
        """Return the file of a search; its settings tell it from others on the subject."""
        folder = settings.database
        is_folder = isinstance(folder, str | Path) and not is_server(folder)
        kind = "exhaustive" if settings.exhaustive else "campaign"
        contract = _in_order(subject.capabilities)
        name = _digest([subject.key, *contract, *map(repr, _deciding(settings))])
        versions = (version("syncverify"), version("torch"), platform.python_version())
        # In a checkout, the version of this package outlives a change.
        own_sources = _digests(Path(__file__).parents[1].rglob("*.py"))
        key = _digest([name, *versions, *sources(subject), *own_sources])
        parent = Path(folder) if is_folder else DEFAULT_FOLDER  # type: ignore[arg-type]
        return cls(parent / f"{kind}-{name}.shards", key)

    def __enter__(self) -> Self:
        """Take the file; raise `UsageError` if a process uses it, or the folder takes no file."""
        try:
            make_ignored_folder(self.path.parent)
            self._lock.acquire()
        except Timeout:
            raise UsageError(
                f"another command plays this search: it holds {self._lock.lock_file!r}; wait for "
                "it, or interrupt it and go on from there"
            ) from None
        except OSError as error:
            raise self._cannot_write(error) from error
        return self

    def __exit__(self, *_error: object) -> None:
        self._lock.release()

    def read(self) -> DoneShards | None:
        """Return the shards of this key, or None; a damaged file is a `UsageError`."""
        try:
            header, _, content = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._cannot_read(f"{error.strerror}") from error
        if header.startswith(b"syncverify ") and not header.startswith(self._start):
            return None  # of others
        if header != self._header(content):
            raise self._cannot_read("its content was changed, or its end is missing")
        try:
            done: DoneShards = plain_value(content)
        except Exception as error:
            raise self._cannot_read(f"{error}") from error
        return done

    def write(self, done: DoneShards, *, at_once: bool = False) -> None:
        """Write new shards, at once or a while after the last write; `UsageError` if it fails."""
        began = time.monotonic()
        if done is self._written or not (at_once or began >= self._next_write):
            return
        content = pickle.dumps(done)
        try:
            make_ignored_folder(self.path.parent)
            replace_file(self.path, self._header(content) + b"\n" + content)
        except OSError as error:
            raise self._cannot_write(error) from error
        self._written = done
        ended = time.monotonic()
        self._next_write = ended + _PAUSE_A_WRITE * (ended - began)

    def _header(self, content: bytes) -> bytes:
        return self._start + hashlib.sha256(content).hexdigest().encode()

    def _cannot_read(self, why: str) -> UsageError:
        return UsageError(
            f"cannot go on from {str(self.path)!r}: {why}; delete it to begin anew"
        )

    def _cannot_write(self, error: OSError) -> UsageError:
        return UsageError(
            f"cannot write {str(self.path)!r}: {error.strerror}; with room there, the same "
            "command goes on"
        )


def forget(path: Path) -> None:
    """Delete the file of a search after its report is written."""
    path.unlink(missing_ok=True)
    path.with_suffix(".lock").unlink(missing_ok=True)


def sources(subject: Subject) -> list[str]:
    """Return the digest of each source file of a subject, in the order of their paths."""
    files = {getattr(each, "__file__", None) for each in modules_of(subject.factory)}
    return _digests(Path(each) for each in files if each)


def _digests(paths: Iterable[Path]) -> list[str]:
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
        if path.is_file()
    ]


def _deciding(settings: Settings) -> tuple[object, ...]:
    """Return the settings that decide which scenarios are played and reported."""
    if settings.exhaustive:
        return settings.backend, SmallScope.parse(settings.scope), settings.schedules
    return (
        *(settings.backend, settings.ranks, settings.examples, settings.random_seed),
        *(settings.schedules, settings.focus, settings.stop_at_first),
        size_of_shards(settings),
    )


def _in_order(contract: Capabilities) -> list[str]:
    """Spell a contract as every process does: the order of a set differs from run to run."""
    values = [getattr(contract, each.name) for each in dataclasses.fields(contract)]
    return [repr(sorted(v) if isinstance(v, frozenset) else v) for v in values]


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
