"""Errors that a subject may raise, and the findings beside them."""

from dataclasses import replace

import pytest

from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.careful import Careful
from syncverify.subjects.subject import resolve

TWO_RANKS = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1, 1), 64
)
EMPTY_FIRST = replace(TWO_RANKS, events=("empty_step", "plain"))
EMPTY_LAST = replace(TWO_RANKS, events=("plain", "empty_step"))


class RefusesEmptySteps(Careful):
    features = frozenset({"event=empty_step"})
    message = "expected a backward in this step, got none"

    def wait(self) -> None:
        if not any(bucket.counts for bucket in self.buckets):
            raise self.error()
        super().wait()

    def error(self) -> Exception:
        return RuntimeError(self.message)


class SaysNothing(RefusesEmptySteps):
    message = ""


class Crashes(RefusesEmptySteps):
    message = "is_ready INTERNAL ASSERT FAILED at reducer.cpp:1, please report a bug"


class Slips(RefusesEmptySteps):
    def error(self) -> Exception:
        return IndexError("list index out of range")


class RefusesTheStepAfter(RefusesEmptySteps):
    def wait(self) -> None:
        if getattr(self, "was_empty", False):
            raise self.error()
        self.was_empty = not any(bucket.counts for bucket in self.buckets)
        Careful.wait(self)


def identities(subject: type[Careful], scenario: Scenario) -> list[tuple[str, str]]:
    found = resolve(subject)
    run = SimBackend().run(scenario, found)
    assert run.fault is not None
    return [v.identity for v in check(scenario, run, found.capabilities)]


def test_a_clear_error_is_as_good_as_the_right_gradient() -> None:
    assert identities(RefusesEmptySteps, EMPTY_FIRST) == []


@pytest.mark.parametrize("subject", [SaysNothing, Crashes, Slips])
def test_an_error_that_explains_nothing_is_a_violation(subject: type[Careful]) -> None:
    wanted = [("every_rank_finishes", "unclear_error")]
    assert identities(subject, EMPTY_FIRST) == wanted


def test_an_error_in_the_step_after_is_a_violation() -> None:
    wanted = [("every_rank_finishes", "raised_RuntimeError")]
    assert identities(RefusesTheStepAfter, EMPTY_FIRST) == wanted


def test_what_came_before_an_allowed_error_is_judged() -> None:
    class NeverReduces(RefusesEmptySteps):
        def launch(self, bucket: object) -> None:
            self.num_launched += 1

    found = identities(NeverReduces, EMPTY_LAST)
    assert ("gradient_equals_reference", "not_reduced") in found
    assert "every_rank_finishes" not in dict(found)
