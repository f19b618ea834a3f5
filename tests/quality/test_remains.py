"""Remains of a subject show whatever the process was seeded with, unless it owns what remains."""

import random
from dataclasses import replace

import pytest

from studies.redteam.wrong.leftovers import LeavesFlatParameters, SeedsPython
from syncverify.program.generators import restored_generators
from syncverify.subjects.subject import resolve
from tests.programs import identities
from tests.quality.planted.remains import SIX_STEPS


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_shows_in_a_process_that_was_seeded_alike(seed: int) -> None:
    with restored_generators():
        random.seed(seed)
        found = identities(SeedsPython, SIX_STEPS)
    assert found == {("unbind_restores_parameters", "generator_seeded")}


def test_a_subject_that_owns_the_parameters_may_keep_them_together() -> None:
    found = resolve(LeavesFlatParameters)
    owning = replace(found.capabilities, owns_parameters=True)
    assert identities(replace(found, capabilities=owning), SIX_STEPS) == set()
