"""The training program writes gradients and parameters between steps, as an optimizer does."""

from dataclasses import replace
from typing import Any

import pytest

from studies.redteam.wrong.training import RestoresParameters
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import Subject, resolve
from tests.programs import identities, violations
from tests.quality.planted.planted import Planted
from tests.quality.planted.stream_bank import ONE
from tests.quality.planted.updates import (
    UPDATE_DEFECTS,
    BroadcastsEverything,
    ReadsParametersLate,
)


def without_updates(subject: type[Any]) -> Subject:
    found = resolve(subject)
    return replace(
        found, capabilities=replace(found.capabilities, owns_parameters=True)
    )


@pytest.mark.parametrize(
    "defect", UPDATE_DEFECTS, ids=lambda each: each.subject.__name__
)
def test_a_defect_that_an_optimizer_shows_is_found(defect: Planted) -> None:
    assert defect.identity in identities(defect.subject, ONE)


@pytest.mark.parametrize(
    "placements", [None, ("S0", "R"), ("R", "S0")], ids=["plain", "outer", "inner"]
)
def test_a_broadcast_of_values_that_stay_local_is_found(
    placements: tuple[str, ...] | None,
) -> None:
    """Ranks that hold the same part of a parameter start with equal values, others not."""
    spec = ParameterSpec("w", (4,), placements)
    scenario = Scenario(MeshSpec((2, 2), ("dp", "tp")), (spec,), (1,), 1024)
    (found,) = violations(BroadcastsEverything, scenario)
    assert found.identity == ("unbind_restores_parameters", "parameter_changed")
    ranks = {None: (1, 2, 3), ("S0", "R"): (2, 3), ("R", "S0"): (1, 3)}
    assert found.ranks == ranks[placements]


@pytest.mark.parametrize("subject", [RestoresParameters, ReadsParametersLate])
def test_a_subject_that_owns_the_parameters_is_not_updated(subject: type[Any]) -> None:
    assert identities(without_updates(subject), ONE) == set()
