"""Violations are kept between runs, played first, and forgotten when they are gone."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    InMemoryExampleDatabase,
    MultiplexedDatabase,
    ReadOnlyDatabase,
)
from search_subjects import Doubles, Naive

from syncverify.backends.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.scenario.token import Reproducer
from syncverify.search.replay import SavedViolations, open_database, replay_saved
from syncverify.subjects.subject import Subject, resolve

PAIR = Scenario(MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1,), 64)
REPRODUCER = Reproducer("gradient_equals_reference", "scaled", PAIR)


def saved(database: Any, subject: Any = Doubles) -> SavedViolations:
    return SavedViolations(open_database(database), resolve(subject), "sim")


def identities(kept: SavedViolations, max_ranks: int = 4) -> list[tuple[str, str]]:
    result, _ = replay_saved(kept, SimBackend(), max_ranks=max_ranks)
    return [found.violation.identity for found in result.violations]


def test_what_is_kept_is_played_first(tmp_path: Path) -> None:
    saved(tmp_path).save(REPRODUCER)
    result, num_played = replay_saved(saved(tmp_path), SimBackend(), max_ranks=4)
    found = {each.violation.identity: each.scenario for each in result.violations}
    assert num_played == 1
    assert found["gradient_equals_reference", "scaled"] == PAIR
    assert result.num_examples == 0


def test_nothing_is_written_before_something_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    assert identities(saved(folder)) == []
    assert not folder.exists()


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    kept = SavedViolations(
        DirectoryBasedExampleDatabase(tmp_path), named(Naive, "it"), "sim"
    )
    kept.save(REPRODUCER)
    assert identities(kept) == []
    assert list(kept.reproducers(4)) == []


def named(factory: Any, name: str) -> Subject:
    return Subject(name, factory, Capabilities())


def test_subjects_and_backends_do_not_share(tmp_path: Path) -> None:
    saved(tmp_path).save(REPRODUCER)
    assert list(saved(tmp_path, Naive).reproducers(4)) == []
    database = DirectoryBasedExampleDatabase(tmp_path)
    gloo = SavedViolations(database, resolve(Doubles), "gloo")
    assert list(gloo.reproducers(4)) == []


def test_what_needs_more_ranks_is_left_for_another_run(tmp_path: Path) -> None:
    kept = saved(tmp_path)
    kept.save(REPRODUCER)
    assert list(kept.reproducers(max_ranks=1)) == []
    assert list(kept.reproducers(max_ranks=2)) == [REPRODUCER]


@pytest.mark.parametrize(
    "able", [Capabilities(scalars=False), Capabilities(outside=frozenset(["launch"]))]
)
def test_what_is_not_promised_any_more_is_not_played(able: Capabilities) -> None:
    scenario = Scenario(
        PAIR.mesh, (ParameterSpec("p0", (), ("R",)),), (1,), 64,
        launch="parameter_streams",
    )  # fmt: skip
    kept = SavedViolations(
        InMemoryExampleDatabase(), Subject("it", Doubles, able), "sim"
    )
    kept.save(Reproducer("p", "c", scenario))
    assert list(kept.reproducers(4)) == []


def test_unreadable_tokens_are_dropped() -> None:
    database = InMemoryExampleDatabase()
    kept = SavedViolations(database, resolve(Doubles), "sim")
    kept.save(REPRODUCER)
    for token in (b"sv1-old", b"\xff"):
        database.save(kept._key, token)
    assert list(kept.reproducers(4)) == [REPRODUCER]
    assert len(list(database.fetch(kept._key))) == 1


def test_other_machines_violations_are_read_and_left_alone(tmp_path: Path) -> None:
    ours, theirs = InMemoryExampleDatabase(), DirectoryBasedExampleDatabase(tmp_path)
    saved(tmp_path).save(REPRODUCER)
    both = saved(MultiplexedDatabase(ours, ReadOnlyDatabase(theirs)))
    assert list(both.reproducers(4)) == [REPRODUCER]
    both.drop(REPRODUCER)
    assert list(saved(tmp_path).reproducers(4)) == [REPRODUCER]
