"""Verdicts on runs of a defect and of its twin that raise or hang."""

from dataclasses import replace

import pytest

from studies.comparison.verdicts import SILENT, how_they_end
from syncverify.judge.properties.judgement import Judgement
from syncverify.trace.run import Fault
from tests.syncverify.judge.properties.handmade_traces import judgement

FINE = judgement(())
MAY_RAISE = "not_on_odd_ranks"  # whose promise is the right gradient, or a clear error


def raises(error: str, *, where_it_may: bool = False) -> Judgement:
    fault = Fault("raised", (0,), f"rank 0 raised {error}", error=error)
    raised = judgement((), fault=fault)
    first, *others = raised.scenario.parameters
    used = MAY_RAISE if where_it_may else "always"
    parameters = (replace(first, used=used), *others)
    return replace(raised, scenario=replace(raised.scenario, parameters=parameters))


def test_an_error_of_the_defect_is_noticed_even_where_it_may_raise() -> None:
    ends = how_they_end(raises("E in wait: no", where_it_may=True), FINE)
    assert [end.alarmed for end in ends] == [True, False]
    assert ends[0].words == "raised: rank 0 raised E in wait: no"


@pytest.mark.parametrize("where_it_may", [False, True])
def test_an_error_of_the_twin_is_an_alarm_unless_it_may_raise(
    *, where_it_may: bool
) -> None:
    _, twin = how_they_end(FINE, raises("E: no", where_it_may=where_it_may))
    assert twin.alarmed != where_it_may


def test_the_same_error_of_both_says_nothing() -> None:
    ends = how_they_end(raises("E: not here"), raises("E: not here"))
    assert [end.alarmed for end in ends] == [False, False]
    assert ends[0].words == "defect and twin raise E: not here"
    other = how_they_end(raises("E: not here"), raises("E: elsewhere"))
    assert [end.alarmed for end in other] == [True, True]


def test_what_the_simulation_alone_can_see_is_nobody_elses_merit() -> None:
    mismatch = judgement((), fault=Fault("collective_mismatch", (0,), "they disagree"))
    on_sim = replace(mismatch, run=replace(mismatch.run, backend="sim"))
    assert how_they_end(mismatch, FINE)[0].alarmed
    assert not how_they_end(on_sim, FINE)[0].alarmed


def test_a_hang_is_noticed() -> None:
    hang = judgement((), fault=Fault("deadlock", (0,), "no rank can go on"))
    assert how_they_end(hang, FINE)[0].words == "deadlock: no rank can go on"
    assert how_they_end(FINE, FINE) == (SILENT, SILENT)
