"""The training program writes gradients and parameters between steps, as an optimizer does."""

from dataclasses import replace

import pytest

from studies.redteam.wrong.training import RestoresParameters
from syncverify.subjects.subject import resolve
from tests.programs import identities, violations
from tests.quality.planted.updates import (
    LOCAL_VALUES,
    TWO_STEPS,
    BroadcastsEverything,
    ReadsParametersLate,
)


def test_a_broadcast_names_the_ranks_whose_values_it_changed() -> None:
    found = [violations(BroadcastsEverything, each)[0] for each in LOCAL_VALUES]
    assert [each.ranks for each in found] == [(1, 2, 3), (2, 3), (1, 3)]


@pytest.mark.parametrize("subject", [RestoresParameters, ReadsParametersLate])
def test_a_subject_that_owns_the_parameters_is_not_updated(subject: type) -> None:
    found = resolve(subject)
    owning = replace(found.capabilities, owns_parameters=True)
    assert identities(replace(found, capabilities=owning), TWO_STEPS) == set()
