"""The search of entries of the bug bank, in this process or in several: the defect, then its fixed twin.

Note [Guilty lines]
    A line of the defect that its twin has not is guilty. Where the defect lacks lines, the
    function that lacks them is, and the functions of the same classes that call it: there the
    work is missing. Methods are compared by name, whichever class of the bank has them.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import inspect
import textwrap
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch

from syncverify.explain.repair.diagnosis import diagnosed
from syncverify.playing.choice import AnyBackend, open_backend
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.processes.calls import run_in_processes
from syncverify.scenario.features import optional_features
from syncverify.scenario.settings import BankOptions, Settings
from syncverify.search.found_violation import FoundViolation
from syncverify.search.search import FirstViolation, find_first
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.bugbank.entry import Entry
from syncverify.subjects.subject import Subject


@dataclass(frozen=True, slots=True)
class Caught:
    """A violation, with the numbers of the smallest scenario that shows it."""

    property: str
    cause: str
    # Smallest contract that covers the scenario: `plain`, or the features beyond plain steps.
    contract: str
    ranks: int
    parameters: int
    steps: int
    token: str

    @classmethod
    def of(cls, found: FoundViolation | None) -> Caught | None:
        """Return a violation in brief, None if there is none."""
        if found is None:
            return None
        violation, scenario = found.violation, found.scenario
        features = sorted({*map(str, optional_features(scenario))})
        return cls(
            property=violation.property,
            cause=violation.cause,
            contract=", ".join(features) or "plain",
            ranks=scenario.mesh.num_ranks,
            parameters=len(scenario.parameters),
            steps=scenario.num_steps,
            token=found.token,
        )


@dataclass(frozen=True, slots=True)
class EntryResult:
    """The result of one entry."""

    id: str
    source: str  # the report of the defect: `owner/project#number`
    backend: str
    examples: int  # scenarios until the first violation, or all if there was none
    seconds: float  # time of these scenarios
    caught: Caught | None  # in its smallest scenario
    seconds_to_shrink: float
    is_cause_right: bool
    twin_examples: int
    # The entry for which the twin played: several may have the same twin.
    twin_played_for: str
    alarm: Caught | None  # the violation of the twin
    # None where nobody looked for the guilty line and for a fix; the fix is as it was played.
    is_line_shown: bool | None = None
    fix: tuple[str, ...] | None = None

    @builtins.property
    def is_right(self) -> bool:
        """Tell whether the defect was caught and the twin was silent."""
        return self.caught is not None and self.alarm is None


class BankPlayer:
    """Plays entries of the bank on an open backend, and each twin once.

    Entries with the same twin and the same contract draw the same scenarios for the twin.
    """

    def __init__(self, backend: AnyBackend, options: BankOptions) -> None:
        self._backend = backend
        self._options = options
        # Keys: twin, contract and number of scenarios. Values: the first entry, its search.
        self._twins: dict[tuple[object, ...], tuple[str, FirstViolation]] = {}

    def play(self, entry: Entry) -> EntryResult:
        """Search for violations of a defect, and of its twin."""
        first = self._search(entry.defect(), self._options.examples)
        # With fewer scenarios the twin would not meet the one that shows the defect.
        num_examples = max(self._options.twin_examples, first.num_examples)
        played_for, twin = self._search_twin(entry, num_examples)
        caught, told = Caught.of(first.found), dict[str, Any]()
        if first.found is not None and self._options.diagnoses:
            violation = diagnosed(first.found, entry.defect(), self._backend)
            told["is_line_shown"] = shows_guilty_line(entry, violation)
            told["fix"] = violation.fix.lines if violation.fix else ()
        return EntryResult(
            id=entry.name,
            source=entry.source,
            backend=self._backend.name,
            examples=first.num_examples,
            seconds=round(first.seconds, 3),
            caught=caught,
            seconds_to_shrink=round(first.seconds_to_shrink, 3),
            is_cause_right=caught is not None and caught.cause in entry.causes,
            twin_examples=twin.num_examples,
            twin_played_for=played_for,
            alarm=Caught.of(twin.found),
            **told,
        )

    def _search_twin(
        self, entry: Entry, num_examples: int
    ) -> tuple[str, FirstViolation]:
        """Search the twin of an entry, unless another entry has searched it."""
        if not self._options.twin_examples:
            return entry.name, FirstViolation(num_examples=0, seconds=0.0)
        key = (*entry.shared_scenarios, num_examples)
        if key not in self._twins:
            self._twins[key] = entry.name, self._search(entry.fixed(), num_examples)
        return self._twins[key]

    def _search(self, subject: Subject, num_examples: int) -> FirstViolation:
        settings = Settings(examples=num_examples, seed=self._options.seed)
        return find_first(subject, self._backend, settings)


def play_all(chosen: Sequence[Entry], options: BankOptions) -> Generator[EntryResult]:
    """Yield the result of each entry, in the order in which searches end.

    With several processes, entries with the same twin come together, and the loss of a process
    before its entries end raises InternalError.
    """
    if options.jobs > 1 and len(chosen) > 1:
        play_entries = functools.partial(_play_entries, options)
        groups = run_in_processes(play_entries, _by_twin(chosen), jobs=options.jobs)
        with closing(groups) as played:
            for _, results in played:
                yield from results
        return
    with closing(open_backend(options.backend, chosen[0].defect())) as opened:
        player = BankPlayer(opened, options)
        yield from map(player.play, chosen)


def _by_twin(chosen: Sequence[Entry]) -> list[tuple[str, ...]]:
    """Group the ids of entries with the same twin, the largest group first."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for entry in chosen:
        groups.setdefault(entry.shared_scenarios, []).append(entry.name)
    return sorted(map(tuple, groups.values()), key=len, reverse=True)


def _play_entries(options: BankOptions, entry_ids: Sequence[str]) -> list[EntryResult]:
    player = BankPlayer(_backend(options.backend), options)
    return [player.play(entry_of(entry_id)) for entry_id in entry_ids]


@functools.cache
def _backend(name: str) -> AnyBackend:
    """Open the backend of this process once; its ranks end with the process."""
    torch.set_num_threads(1)
    show_warnings_once()
    playable = next(entry for entry in entries() if entry.runs_on(name))
    return open_backend(name, playable.defect())


# File and number of a line.
Place = tuple[str, int]


def shows_guilty_line(entry: Entry, found: FoundViolation) -> bool:
    """Tell whether a report names a line of which the entry is guilty, or changes one."""
    named = {(line.file, line.number) for line in found.lines}
    if found.fix is not None:
        place = found.fix.place
        numbers = range(place.number, place.number + max(found.fix.num_removed, 1))
        named |= {(place.file, number) for number in numbers}
    return not named.isdisjoint(guilty_lines(entry))


def guilty_lines(entry: Entry) -> set[Place]:
    """Return the guilty lines of an entry; see Note [Guilty lines]."""
    subject, right = entry.subject, entry.twin
    assert right is not None, "each entry of the bank has a twin"
    found = set[Place]()
    for name in sorted({*_own_methods(subject), *_own_methods(right)}):
        defect, twin = _lines(subject, name), _lines(right, name)
        if [text for _, text in defect] == [text for _, text in twin]:
            continue
        found |= {*_changed(defect, twin)}
        if _num_statements(subject, name) < _num_statements(right, name):
            found |= {place for place, _ in defect}
            found |= {*_calls(subject, name)}
    return found


def _own_methods(owner: type[Any]) -> list[str]:
    return [name for name, value in vars(owner).items() if inspect.isfunction(value)]


def _lines(owner: type[Any], name: str) -> list[tuple[Place, str]]:
    """Return the lines of a method with their places; none if a class has no such method."""
    method = getattr(owner, name, None)
    if not inspect.isfunction(method):
        return []
    texts, first = inspect.getsourcelines(method)
    path = inspect.getsourcefile(method) or ""
    return [((path, first + n), text.strip()) for n, text in enumerate(texts)]


def _num_statements(owner: type[Any], name: str) -> int:
    """Count the statements of a method that do something, nested ones included."""
    method = getattr(owner, name, None)
    if not inspect.isfunction(method):
        return 0
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Pass)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.walk(function)
    )


def _changed(
    defect: list[tuple[Place, str]], twin: list[tuple[Place, str]]
) -> Iterator[Place]:
    texts = [text for _, text in defect], [text for _, text in twin]
    matcher = difflib.SequenceMatcher(None, *texts, autojunk=False)
    for kind, start, end, _, _ in matcher.get_opcodes():
        if kind in {"delete", "replace"}:  # lines of the defect that the twin has not
            yield from (place for place, _ in defect[start:end])
        elif kind == "insert":  # lines are missing between two of the defect
            yield from (place for place, _ in defect[max(0, start - 1) : start + 1])


def _calls(owner: type[Any], name: str) -> Iterator[Place]:
    """Yield the lines of the methods of a class and its bases that call a method."""
    for base in owner.__mro__[:-1]:
        for caller in _own_methods(base):
            lines = _lines(base, caller)
            if any(f".{name}(" in text for _, text in lines):
                yield from (place for place, _ in lines)
