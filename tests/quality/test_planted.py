"""Each planted entry with fixed scenarios shows there as it says, and nowhere else; right ones are silent."""

import random

import pytest
import torch

from syncverify.judge.violation import Violation
from syncverify.scenario.replay_token import Reproducer, decode, encode
from syncverify.scenario.scenario import Scenario
from tests.programs import violations
from tests.quality.planted.planted import Planted, planted_in

pytestmark = pytest.mark.slow
FIXED = [each for each in planted_in() if each.scenarios or each.elsewhere]
WRONG = [each for each in FIXED if each.is_wrong]
Played = tuple[Planted, Scenario]


def each_scenario(played: list[Played]) -> pytest.MarkDecorator:
    names = [f"{each.name}-{each.family}" for each, _ in played]
    return pytest.mark.parametrize(("entry", "scenario"), played, ids=names)


@pytest.fixture(autouse=True)
def _own_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put torch's `backward` back after a test: one subject replaces it."""
    monkeypatch.setattr(torch.Tensor, "backward", torch.Tensor.backward)


@pytest.mark.long
@each_scenario([(each, s) for each in WRONG for s in each.scenarios])
def test_defect_shows_as_the_entry_says(entry: Planted, scenario: Scenario) -> None:
    before = torch.get_default_dtype(), torch.get_rng_state(), random.getstate()
    found = violations(entry.subject, scenario)
    assert named(found, entry)
    if entry.is_alone:
        assert {each.identity for each in found} == {entry.identity}
    explained = "\n".join(each.summary for each in found)
    assert [part for part in entry.says if part not in explained] == []
    causes = {each.cause for each in found}
    assert [each for each in entry.never if each in causes or each in explained] == []
    # Whatever the subject changes, the process is as it was before.
    assert torch.get_default_dtype() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert random.getstate() == before[2]


def named(found: list[Violation], entry: Planted) -> list[Violation]:
    """Return the violations that name the mistake: by property and cause, property, or any."""
    return [
        each
        for each in found
        if entry.violates in {"", each.property}
        and each.cause in (entry.causes or {each.cause})
    ]


@each_scenario([(each, s) for each in WRONG for s in each.elsewhere])
def test_defect_does_not_show_elsewhere(entry: Planted, scenario: Scenario) -> None:
    assert violations(entry.subject, scenario) == []


@each_scenario([(e, s) for e in WRONG if e.twin for s in e.scenarios])
def test_twin_is_silent(entry: Planted, scenario: Scenario) -> None:
    assert violations(entry.twin, scenario) == []


@pytest.mark.long
@each_scenario(
    [(each, s) for each in FIXED if not each.is_wrong for s in each.scenarios]
)
def test_right_program_is_silent(entry: Planted, scenario: Scenario) -> None:
    assert violations(entry.subject, scenario) == []


def test_a_token_keeps_each_scenario() -> None:
    played = {scenario for each in planted_in() for scenario in each.scenarios}
    reproducers = [Reproducer("any", "cause", scenario) for scenario in played]
    assert [decode(encode(each)) for each in reproducers] == reproducers
