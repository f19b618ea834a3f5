"""The parts of an exhaustive search that were played, in a file that is never half written."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

from syncverify.errors import UsageError
from syncverify.judge.ordering.held_memory import HeldMemory
from syncverify.search.line_probe import PlayedLines, modules_of
from syncverify.search.result import RunStatistics
from syncverify.search.schedules import ScheduleCoverage
from syncverify.search.whole_file import replace_file
from syncverify.subjects.subject import Subject

_VERSION: Final = 1
DEFAULT_FOLDER: Final = Path(".syncverify")


@dataclass(frozen=True, slots=True)
class PartsPlayed:
    """What is known of a scope before all of it was played.

    Attributes:
        done: Numbers of the parts that were played.
        applied: Number of scenarios in which a property had something to judge, by property.
        statistics: Statistics of the runs.
        tokens: One violation of each identity.
    """

    done: frozenset[int] = frozenset()
    applied: dict[str, int] = field(default_factory=dict)
    statistics: RunStatistics = field(default_factory=RunStatistics)
    tokens: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `from_json` reads back."""
        return {
            "done": sorted(self.done),
            "applied": self.applied,
            "statistics": _statistics_json(self.statistics),
            "tokens": [*self.tokens],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return the parts of a result of `to_json`."""
        return cls(
            frozenset(data["done"]),
            dict(data["applied"]),
            _statistics(data["statistics"]),
            tuple(data["tokens"]),
        )


@dataclass(frozen=True, slots=True)
class PartsFile:
    """The file of one search.

    Attributes:
        path: Its path.
        key: Digest of all that decides the verdicts: sources, contract, scope, schedules.
    """

    path: Path
    key: str

    @classmethod
    def of(cls, subject: Subject, folder: Path, *of_search: object) -> Self:
        """Return the file of a search, whose values tell it from others on the subject."""
        name = _digest([subject.key, *map(repr, of_search)])
        own = [version("syncverify"), version("torch"), repr(subject.capabilities)]
        key = _digest([name, *own, *_sources(subject)])
        return cls(folder / f"exhaustive-{name}.json", key)

    def read(self) -> PartsPlayed:
        """Return the parts played; none where the file is of other sources, or no such file."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            data = json.loads(self.path.read_text(encoding="utf-8"))
            if (data["version"], data["key"]) == (_VERSION, self.key):
                return PartsPlayed.from_json(data)
        return PartsPlayed()

    def write(self, parts: PartsPlayed) -> None:
        """Write the parts played.

        Raises:
            UsageError: The file cannot be written.
        """
        data = {"version": _VERSION, "key": self.key, **parts.to_json()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, json.dumps(data).encode())
        except OSError as error:
            words = f"cannot write {str(self.path)!r}: {error.strerror}"
            raise UsageError(words) from error

    def drop(self) -> None:
        """Delete the file, once all parts were played."""
        self.path.unlink(missing_ok=True)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _sources(subject: Subject) -> list[str]:
    """Return the digest of each source file of a subject, in the order of their paths."""
    files = {getattr(each, "__file__", None) for each in modules_of(subject.factory)}
    paths = sorted(Path(each) for each in files if each)
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_file()
    ]


def _statistics_json(statistics: RunStatistics) -> dict[str, Any]:
    lines = statistics.lines.items()
    schedules = Counter(statistics.schedules).items()
    return {
        "overlaps": [statistics.num_overlaps, statistics.num_overlaps_possible],
        "held": asdict(statistics.held),
        "schedules": [[*astuple(each), count] for each, count in schedules],
        "remarks": [*dict.fromkeys(statistics.remarks)],
        "refused": statistics.num_refused,
        "lines": {path: [[*each.all], [*each.played]] for path, each in lines},
    }


def _statistics(data: dict[str, Any]) -> RunStatistics:
    schedules = (
        [ScheduleCoverage(*values)] * count for *values, count in data["schedules"]
    )
    num_done, num_possible = data["overlaps"]
    return RunStatistics(
        num_done,
        num_possible,
        HeldMemory(**data["held"]),
        tuple(each for listed in schedules for each in listed),
        tuple(data["remarks"]),
        data["refused"],
        {
            path: PlayedLines(frozenset(all_lines), frozenset(played))
            for path, (all_lines, played) in data["lines"].items()
        },
    )
