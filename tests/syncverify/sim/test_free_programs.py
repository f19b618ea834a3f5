"""Programs that torch's users write finish on the simulated machine, without an alarm."""

import pytest

from syncverify.judge.ordering.races import judge_orderings
from tests.free_programs import FREE_PROGRAMS, Program, play


@pytest.mark.long
@pytest.mark.parametrize("program", FREE_PROGRAMS.values(), ids=FREE_PROGRAMS)
def test_a_right_free_program_ends_without_an_alarm(program: Program) -> None:
    machine = play(program, 4)
    found = judge_orderings([recorder.trace for recorder in machine.recorders])
    assert found.races == ()
    assert found.early_frees == ()
