"""The mistakes, read from `mistakes.toml`, and the sources with each of them."""

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from studies.mistakes.bases.bucketed import BucketedSynchronizer
from studies.mistakes.bases.wrapper import DataParallelSubject
from syncverify.subjects.bugbank.entry import Entry

FOLDER: Final = Path(__file__).parent
KINDS: Final = ("counters", "hooks", "views", "groups")
# The right synchronizer in the file of each base.
SUBJECTS: Final[dict[str, type[Any]]] = {
    "bucketed": BucketedSynchronizer,
    "wrapper": DataParallelSubject,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake(Entry):
    """An entry whose subject is a right synchronizer with one line changed.

    Attributes:
        base: File in `bases/`, without its ending.
        old: The right line, without indentation.
        new: The wrong line.
        true: Causes of violations that follow from the mistake.
        says: Words of which a right diagnosis has one; none where the cause is enough.
        nth: Number of the line among those that read like `old`, from 1.
    """

    base: str
    old: str
    new: str
    true: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    nth: int = 1

    @property
    def kind(self) -> str:
        """Return the word of `KINDS`."""
        return self.family

    @property
    def why(self) -> str:
        """Return the reason that `causes` are right."""
        return self.trigger

    @property
    def text(self) -> str:
        """Return the base with the mistake.

        Raises:
            ValueError: The base has no such line.
        """
        lines = base_source(self.base).splitlines()
        places = [n for n, line in enumerate(lines) if line.strip() == self.old]
        if len(places) < self.nth:
            raise ValueError(f"{self.name}: {self.base} has no line {self.old!r}")
        place = places[self.nth - 1]
        lines[place] = lines[place].replace(self.old, self.new)
        return "\n".join([*lines, ""])


def base_source(base: str) -> str:
    """Return the text of a right synchronizer."""
    return (FOLDER / "bases" / f"{base}.py").read_text(encoding="utf-8")


def subject_of(base: str) -> str:
    """Return the subject of a base, as `syncverify run` takes it."""
    return f"{base}.py:{SUBJECTS[base].__name__}"


@functools.cache
def mistakes() -> tuple[Mistake, ...]:
    """List all mistakes, kind by kind."""
    tables = tomllib.loads((FOLDER / "mistakes.toml").read_text(encoding="utf-8"))
    return tuple(_read(kind, entry) for kind in KINDS for entry in tables[kind])


def mistake_named(name: str) -> Mistake:
    """Return the mistake of a name."""
    return {mistake.name: mistake for mistake in mistakes()}[name]


def _read(kind: str, entry: dict[str, Any]) -> Mistake:
    lists = {name: tuple(entry.get(name, ())) for name in ("causes", "true", "says")}
    fields = {"family": kind, "trigger": entry.pop("why"), **entry, **lists}
    right = SUBJECTS[entry["base"]]
    return Mistake(subject=right, twin=right, source="a slip of one line", **fields)
