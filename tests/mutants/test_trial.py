"""A mutant is tried in a process of its own, and what notices it is named."""

from dataclasses import replace

import pytest

from mutants.generation import Mutant, mutants, unchanged
from mutants.trial import tried


def one(prefix: str) -> Mutant:
    return next(mutant for mutant in mutants() if mutant.id.startswith(prefix))


@pytest.mark.slow
def test_a_scenario_notices_a_sum_that_nobody_waits_for() -> None:
    outcome = tried(one("drop_wait-transport"), examples=1)
    assert outcome.killed_by == "gradient_equals_reference (rank_contribution_missing)"
    assert outcome.examples <= 20


@pytest.mark.slow
def test_a_mutant_that_cannot_be_imported_is_noticed() -> None:
    broken = replace(unchanged(), text="import nothing_of_that_name\n")
    outcome = tried(broken, examples=1)
    assert outcome.killed_by == "ModuleNotFoundError on import"
