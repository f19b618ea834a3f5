"""Each violation is saved at the moment at which it is met, and once more when shrunk."""

from dataclasses import dataclass, field
from pathlib import Path

from syncverify.judge.violation import Violation
from syncverify.scenario.replay_token import encode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.result import SilentProgress
from syncverify.search.saved_violations import (
    KeepingProgress,
    SavedViolations,
    open_database,
)
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_subjects import Doubles


def met(cause: str, *, ranks: int, cap: int = 64) -> FoundViolation:
    scenario = Scenario(
        MeshSpec((ranks,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1,), cap
    )
    return FoundViolation(Violation("gradient_equals_reference", cause, ""), scenario)


@dataclass
class Listening(SilentProgress):
    """Notes each call, and the number of tokens in the store at that moment."""

    saved: SavedViolations
    events: list[tuple[str, str, int, int]] = field(default_factory=list)

    def found(self, violation: FoundViolation) -> None:
        self._note("found", violation)

    def shrunk(self, violation: FoundViolation) -> None:
        self._note("shrunk", violation)

    def _note(self, kind: str, violation: FoundViolation) -> None:
        counts = len([*self.saved.unshrunk(4)]), len([*self.saved.reproducers(4)])
        self.events.append((kind, violation.violation.cause, *counts))


def keeping(folder: Path) -> tuple[KeepingProgress, Listening]:
    store = SavedViolations(open_database(folder, []), resolve(Doubles), "sim")
    listening = Listening(store)
    return KeepingProgress(store, listening), listening


def test_a_violation_is_saved_before_it_is_reported(tmp_path: Path) -> None:
    kept, listening = keeping(tmp_path)
    kept.found(met("scaled", ranks=3))
    assert listening.events == [("found", "scaled", 1, 0)]
    assert [*map(encode, kept.saved.unshrunk(4))] == [met("scaled", ranks=3).token]


def test_one_identity_is_reported_and_saved_once(tmp_path: Path) -> None:
    kept, listening = keeping(tmp_path)
    for ranks in (3, 2):
        kept.found(met("scaled", ranks=ranks))
    kept.shrunk(met("scaled", ranks=2))
    kept.found(met("scaled", ranks=4))
    assert [kind for kind, *_ in listening.events] == ["found", "shrunk"]
    assert [*kept.saved.unshrunk(4)] == []


def test_the_shrunk_violation_takes_the_place_of_the_first(tmp_path: Path) -> None:
    kept, listening = keeping(tmp_path)
    kept.found(met("scaled", ranks=3))
    kept.shrunk(met("scaled", ranks=2))
    assert listening.events[-1] == ("shrunk", "scaled", 0, 1)
    assert [*map(encode, kept.saved.reproducers(4))] == [met("scaled", ranks=2).token]


def test_of_several_shrunk_forms_the_smallest_is_kept(tmp_path: Path) -> None:
    """As several processes send them, in any order."""
    kept, _ = keeping(tmp_path)
    for ranks, cap in ((3, 64), (2, 64), (4, 64), (2, 128)):
        kept.shrunk(met("scaled", ranks=ranks, cap=cap))
    assert [*map(encode, kept.saved.reproducers(4))] == [met("scaled", ranks=2).token]


def test_a_violation_that_another_one_explains_is_dropped_in_the_end(
    tmp_path: Path,
) -> None:
    kept, _ = keeping(tmp_path)
    kept.found(met("unexplained", ranks=3))
    kept.found(met("scaled", ranks=2))
    for cause in ("scaled", "stale"):
        kept.shrunk(met(cause, ranks=2))
    kept.keep_only({met("scaled", ranks=2).violation.identity})
    assert [*kept.saved.unshrunk(4)] == []
    assert len([*kept.saved.reproducers(4)]) == 1
