"""A fix is code in the subject's own names, and was played."""

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.judge.properties import check
from syncverify.repair.search import find_fix
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
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
