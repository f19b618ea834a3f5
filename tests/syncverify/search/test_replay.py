"""Violations are kept between runs, played first, and forgotten when they are gone."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis.database import DirectoryBasedExampleDatabase, InMemoryExampleDatabase

from syncverify.errors import EnvironmentNotSupportedError, InternalError
from syncverify.judge.violation import Violation
from syncverify.playing.sim import SimBackend
from syncverify.progress import SilentProgress
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.replay_token import Reproducer, encode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.saved_violations import (
    KeepingProgress,
    Replay,
    SavedViolations,
    replay_saved,
    shrink_replayed,
)
from syncverify.search.violation_database import open_database
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.run import Run
from tests.programs import one_parameter
from tests.syncverify.search.search_subjects import Doubles, Naive

PAIR = one_parameter(2, "p0", (2,), cap_bytes=64)
REPRODUCER = Reproducer("gradient_equals_reference", "scaled", PAIR)


def saved(database: Any, subject: Any = Doubles) -> SavedViolations:
    return SavedViolations(open_database(database, []), resolve(subject), "sim")


def identities(kept: SavedViolations, max_ranks: int = 4) -> list[tuple[str, str]]:
    replay = replay_saved(kept, SimBackend(), SilentProgress(), max_ranks=max_ranks)
    return [found.violation.identity for found in replay.result.violations]


def test_what_is_kept_is_played_first(tmp_path: Path) -> None:
    saved(tmp_path).save(encode(REPRODUCER))
    progress = SilentProgress()
    replay = replay_saved(saved(tmp_path), SimBackend(), progress, max_ranks=4)
    result = replay.result
    found = {each.violation.identity: each.scenario for each in result.violations}
    assert replay.num_played == 1
    assert replay.shrunk == found.keys()
    assert found["gradient_equals_reference", "scaled"] == PAIR
    assert result.num_examples == 0


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    kept = SavedViolations(
        DirectoryBasedExampleDatabase(tmp_path), named(Naive, "it"), "sim"
    )
    kept.save(encode(REPRODUCER))
    assert identities(kept) == []
    assert list(kept.reproducers(4)) == []


def named(factory: Any, name: str) -> Subject:
    return Subject(name, factory, Capabilities())


def test_subjects_and_backends_do_not_share(tmp_path: Path) -> None:
    saved(tmp_path).save(encode(REPRODUCER))
    assert list(saved(tmp_path, Naive).reproducers(4)) == []
    database = DirectoryBasedExampleDatabase(tmp_path)
    gloo = SavedViolations(database, resolve(Doubles), "gloo")
    assert list(gloo.reproducers(4)) == []


def test_what_needs_more_ranks_is_left_for_another_run(tmp_path: Path) -> None:
    kept = saved(tmp_path)
    kept.save(encode(REPRODUCER))
    assert list(kept.reproducers(max_ranks=1)) == []
    assert list(kept.reproducers(max_ranks=2)) == [REPRODUCER]


@pytest.mark.parametrize(
    "capabilities",
    [Capabilities(scalars=False, features=frozenset({"launch"})), Capabilities()],
)
def test_what_is_not_promised_any_more_is_not_played(
    capabilities: Capabilities,
) -> None:
    scenario = Scenario(
        PAIR.mesh, (ParameterSpec("p0", (), ("R",)),), (1,), 64,
        launch="parameter_streams",
    )  # fmt: skip
    kept = SavedViolations(
        InMemoryExampleDatabase(), Subject("it", Doubles, capabilities), "sim"
    )
    kept.save(encode(Reproducer("p", "c", scenario)))
    assert list(kept.reproducers(4)) == []


def test_entries_that_no_run_can_play_are_dropped_with_a_line_each() -> None:
    database = InMemoryExampleDatabase()
    kept = SavedViolations(database, resolve(Doubles), "sim")
    kept.save(encode(REPRODUCER))
    huge = encode(REPRODUCER).replace("sv2-", "sv2-A").encode()
    for entry in (b"\xff", b"", huge):
        database.save(kept._key(is_shrunk=True), entry)
    assert list(kept.reproducers(4)) == [REPRODUCER]
    assert len(list(database.fetch(kept._key(is_shrunk=True)))) == 1
    assert len(kept.notes) == 3
    assert all(note.startswith("dropped a saved violation: ") for note in kept.notes)
    assert list(kept.reproducers(4)) == [REPRODUCER]
    assert len(kept.notes) == 3


def test_entries_of_other_versions_are_kept_for_them() -> None:
    database = InMemoryExampleDatabase()
    kept = SavedViolations(database, resolve(Doubles), "sim")
    for entry in (b"sv1-old", b"sv3-new"):
        database.save(kept._key(is_shrunk=True), entry)
    assert list(kept.reproducers(4)) == []
    assert set(database.fetch(kept._key(is_shrunk=True))) == {b"sv1-old", b"sv3-new"}
    (note,) = kept.notes
    assert note.startswith("kept 2 saved violations of another version of syncverify")


class Fails(SimBackend):
    """Fails to play anything, by an error of one class."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def run(self, *_arguments: object) -> Run:
        raise self.error("no such luck")


def test_entry_that_this_machine_cannot_play_is_kept() -> None:
    kept = saved(None)
    kept.save(encode(REPRODUCER))
    backend = Fails(EnvironmentNotSupportedError)
    assert replay_saved(kept, backend, SilentProgress(), max_ranks=4).num_played == 0
    assert list(kept.reproducers(4)) == [REPRODUCER]
    assert kept.notes == ["skipped a saved violation: no such luck"]


def test_entry_that_the_harness_fails_on_does_not_fail_the_next_run() -> None:
    kept = saved(None)
    kept.save(encode(REPRODUCER))
    with pytest.raises(InternalError, match=r"^no such luck$"):
        replay_saved(kept, Fails(InternalError), SilentProgress(), max_ranks=4)
    assert list(kept.reproducers(4)) == []


WIDE = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(2)),
    (2, 2),
    64,
)
SCALED = ("gradient_equals_reference", "scaled")


def interrupted(database: Any) -> tuple[SavedViolations, Replay]:
    """Save a violation as an interrupted run does, and play it."""
    kept = saved(database)
    kept.save(encode(Reproducer(*SCALED, WIDE)), is_shrunk=False)
    return kept, replay_saved(kept, SimBackend(), SilentProgress(), max_ranks=4)


@pytest.mark.long
def test_what_an_interrupted_run_left_is_shrunk_by_the_next(tmp_path: Path) -> None:
    kept, replay = interrupted(tmp_path)
    keeping = KeepingProgress(kept, SilentProgress())
    for entry in replay.result.violations:
        keeping.found(entry)
    result = shrink_replayed(replay, [], kept.subject, SimBackend(), keeping)
    least = {each.violation.identity: each.scenario for each in result.violations}
    assert len(least[SCALED].parameters) == 1
    assert least[SCALED].accumulations == (1,)
    assert Reproducer(*SCALED, least[SCALED]) in kept.reproducers(4)
    assert list(kept.reproducers(4, is_shrunk=False)) == []


def test_what_was_shrunk_meanwhile_is_not_shrunk_again(tmp_path: Path) -> None:
    kept, replay = interrupted(tmp_path)
    again = replace(replay.result, num_examples=20)
    result = shrink_replayed(
        replay, [again], kept.subject, SimBackend(), SilentProgress()
    )
    assert {each.scenario for each in result.violations} == {WIDE}


# Each violation is saved at the moment at which it is met, and once more when shrunk.


def found_with(cause: str, *, ranks: int, cap: int = 64) -> FoundViolation:
    scenario = one_parameter(ranks, "p0", (2,), cap_bytes=cap)
    return FoundViolation(Violation("gradient_equals_reference", cause, ""), scenario)


@dataclass
class Hearing(SilentProgress):
    """Notes each call, and the number of tokens in the store at that moment."""

    saved: SavedViolations
    events: list[tuple[str, str, int, int]] = field(default_factory=list)

    def found(self, violation: FoundViolation) -> None:
        self._note("found", violation)

    def shrunk(self, violation: FoundViolation) -> None:
        self._note("shrunk", violation)

    def _note(self, kind: str, violation: FoundViolation) -> None:
        counts = (
            len([*self.saved.reproducers(4, is_shrunk=False)]),
            len([*self.saved.reproducers(4)]),
        )
        self.events.append((kind, violation.violation.cause, *counts))


def keeping(folder: Path) -> tuple[KeepingProgress, Hearing]:
    store = SavedViolations(open_database(folder, []), resolve(Doubles), "sim")
    listening = Hearing(store)
    return KeepingProgress(store, listening), listening


def test_a_violation_is_saved_before_it_is_reported(tmp_path: Path) -> None:
    kept, listening = keeping(tmp_path)
    kept.found(found_with("scaled", ranks=3))
    assert listening.events == [("found", "scaled", 1, 0)]
    assert [*map(encode, kept.saved.reproducers(4, is_shrunk=False))] == [
        found_with("scaled", ranks=3).token
    ]


def test_of_several_shrunk_forms_the_smallest_is_kept(tmp_path: Path) -> None:
    """As several processes send them, in any order."""
    kept, _ = keeping(tmp_path)
    for ranks, cap in ((3, 64), (2, 64), (4, 64), (2, 128)):
        kept.shrunk(found_with("scaled", ranks=ranks, cap=cap))
    assert [*map(encode, kept.saved.reproducers(4))] == [
        found_with("scaled", ranks=2).token
    ]


def test_a_violation_that_another_one_explains_is_dropped_in_the_end(
    tmp_path: Path,
) -> None:
    kept, _ = keeping(tmp_path)
    kept.found(found_with("unexplained", ranks=3))
    kept.found(found_with("scaled", ranks=2))
    for cause in ("scaled", "stale"):
        kept.shrunk(found_with(cause, ranks=2))
    kept.keep_only({found_with("scaled", ranks=2).violation.identity})
    assert [*kept.saved.reproducers(4, is_shrunk=False)] == []
    assert len([*kept.saved.reproducers(4)]) == 1
