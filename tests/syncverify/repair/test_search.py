"""A fix is code in the subject's own names, and was played."""

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.repair.search import Game, find_fix
from syncverify.repair.source_edit import Edit
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.subjects.subject import Subject
from syncverify.witness.fix import Fix

PAIR = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("w", (3,), ("R",)),), (2,), 1 << 20
)
BACKEND = SimBackend()


def violation(subject: Subject) -> FoundViolation | None:
    run = BACKEND.run(PAIR, subject)
    found = check(PAIR, run, subject.capabilities)
    return FoundViolation(found[0], PAIR) if found else None


def fix_of(entry_id: str) -> Fix | None:
    subject = entry_of(entry_id).defect()
    found = violation(subject)
    assert found is not None
    return find_fix(found, subject, BACKEND)


@pytest.mark.long
@pytest.mark.parametrize(
    ("entry_id", "place", "lines"),
    [
        (
            "final-join-missing",
            "side_streams.py:34 in wait",
            (
                "  self.join()",
                "+ torch.cuda.current_stream().wait_stream(self.comm)",
            ),
        ),
        (
            "comm-stream-not-after-producer",
            "side_streams.py:26 in launch",
            (
                "  self.fork()",
                "+ self.comm.wait_stream(torch.cuda.current_stream())",
            ),
        ),
        (
            "double-accumulation-division",
            "double_accumulation_division.py:20 in divisor",
            (
                "- return super().divisor(bucket) * self.required",
                "+ return super().divisor(bucket)",
            ),
        ),
    ],
)
def test_the_fix_of_a_defect(entry_id: str, place: str, lines: tuple[str, ...]) -> None:
    fix = fix_of(entry_id)
    assert fix is not None
    assert fix.place.endswith(place)
    assert (fix.lines, fix.num_others) == (lines, 6)
    # The subject is as it was.
    assert violation(entry_of(entry_id).defect()) is not None


MISMATCH = ("collectives_match_across_ranks", "foreign_contribution")
LOST = ("gradient_equals_reference", "not_reduced")
LEFT = ("unbind_restores_parameters", "hook_left")


@pytest.mark.parametrize(
    ("before", "after", "num_others"),
    [
        ({MISMATCH, LOST}, set(), 6),
        ({LOST}, {LOST}, None),  # nothing is reduced, and nothing can mismatch
        ({MISMATCH}, {MISMATCH}, None),
        ({LEFT}, {LEFT}, 6),  # another defect
        (set(), {LEFT}, None),
    ],
)
def test_a_change_has_to_hold_what_it_mends_in_other_scenarios(
    monkeypatch: pytest.MonkeyPatch,
    before: set[Identity],
    after: set[Identity],
    num_others: int | None,
) -> None:
    def identities(_: Game, __: Scenario, edit: Edit | None) -> set[Identity]:
        return before if edit is None else after

    monkeypatch.setattr(Game, "_identities", identities)
    found = FoundViolation(Violation(*MISMATCH, "", (), (), {}), PAIR)
    game = Game(found, entry_of("final-join-missing").defect(), BACKEND)
    edit = Edit("sync.py", 1, 1, ("return",), 4)
    assert game.harmless_in(edit) == num_others


def test_no_change_mends_what_one_play_does_not_show() -> None:
    subject = entry_of("final-join-missing").defect()
    found = violation(subject)
    assert found is not None
    assert Game(found, subject, BACKEND).shows_violation()
    chance = Violation("subject_is_deterministic", "acts_otherwise", "", (), (), {})
    by_chance = FoundViolation(chance, PAIR)
    assert not Game(by_chance, subject, BACKEND).shows_violation()
    assert find_fix(by_chance, subject, BACKEND) is None
