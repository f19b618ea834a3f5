"""Hashes of a run are compared with those of a trusted one."""

from collections.abc import Callable

import pytest

from studies.comparison.cases import Case
from studies.comparison.methods.debug_mode import DEBUG_MODE
from studies.comparison.rigs import Rigs

pytestmark = pytest.mark.nightly


def test_another_factor_is_seen(rigs: Rigs, case: Callable[[str], Case]) -> None:
    found = case("avg-divides-by-numel")
    verdicts = [
        DEBUG_MODE.judge(rigs.play(DEBUG_MODE.rig, found, subject))
        for subject in (found.defect, found.twin)
    ]
    assert [each.alarmed for each in verdicts] == [True, False]
    assert "aten::div_" in verdicts[0].words


def test_logs_of_other_operators_are_no_finding(
    rigs: Rigs, case: Callable[[str], Case]
) -> None:
    found = case("avg-single-rank-tail-lost")
    verdict = DEBUG_MODE.judge(rigs.play(DEBUG_MODE.rig, found, found.defect))
    assert not verdict.alarmed
    assert verdict.words.startswith("operators differ from the trusted run: ")


def test_a_process_that_dies_ends_the_run(
    rigs: Rigs, case: Callable[[str], Case]
) -> None:
    found = case("launched-as-ready")
    fault = rigs.play(DEBUG_MODE.rig, found, found.defect).run.fault
    assert fault is not None
    assert fault.kind == "process_died"
