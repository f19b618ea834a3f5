"""Gradients that no collective of their step sent: zeros, and the own gradient of a rank."""

from dataclasses import replace

import pytest
import torch

from syncverify.bugbank.layout import ShardsWithoutPadding
from syncverify.judge.decoding import explain
from syncverify.judge.properties.mechanisms import mechanism
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.trace.records import Moment, SubjectReturn, TraceRecord
from syncverify.trace.run import Observation, RankRun
from tests.programs import violations
from tests.syncverify.judge.properties.shown_causes import (
    BUCKET,
    EXPECTED,
    IN_BUCKET,
    ORACLE,
    OTHER,
    OWN,
    STEP,
    ZEROS,
    causes_of,
    launch,
)

SENDS_OTHER = replace(
    launch(names=()),
    numel=4,
    contents=(ORACLE.local(OTHER, 0, STEP, (0, 1)).float().numpy().tobytes(),),
    regions=(BUCKET,),
)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((), "no collective of the step sent it: none was launched"),
        ((SENDS_OTHER,), "no collective of the step sent it: they sent other"),
    ],
)
def test_zeros_that_nobody_sends_are_not_reduced(
    events: tuple[TraceRecord, ...], message: str
) -> None:
    _, cause = causes_of(ZEROS, *events, shown_at=IN_BUCKET)
    assert (cause.kind, cause.is_certain) == ("not_reduced", True)
    assert message in cause.text


@pytest.mark.parametrize(
    ("observed", "begin"), [(ZEROS, "it is all zeros"), (OWN, "it is rank 0's own")]
)
def test_hooks_before_accumulation_are_a_likely_reason_that_nobody_sends(
    observed: torch.Tensor, begin: str
) -> None:
    hooked = SubjectReturn(
        Moment("wait", STEP), gradients={"w": IN_BUCKET}, hooked_early=frozenset({"w"})
    )
    wrong = observed.to(torch.float32)
    of_value = explain(EXPECTED, wrong)
    assert of_value is not None
    seen = Observation("reduced", STEP, None, {"w": wrong})
    cause = mechanism(EXPECTED, seen, of_value, RankRun([seen], [hooked]))
    assert (cause.kind, cause.is_certain) == ("hook_too_early", False)
    assert cause.text.startswith(begin)
    sent = RankRun([seen], [launch(names=("other",)), hooked])
    assert mechanism(EXPECTED, seen, of_value, sent).kind != "hook_too_early"


@pytest.mark.parametrize(
    ("dtype", "numel"),
    [
        ("bfloat16", 4),  # each share is gathered after it is reduced
        ("float32", 3),  # the last element is in no share
        ("bfloat16", 5),
    ],
)
def test_a_gradient_beside_shards_and_cut_ones_is_not_reduced(
    dtype: str, numel: int
) -> None:
    specs = (
        ParameterSpec("p0", (), ("R",)),
        ParameterSpec("p1", (numel,), ("R",), dtype),
    )
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), bucket_cap_bytes=1)
    found = violations(ShardsWithoutPadding, scenario)
    first = next(each for each in found if each.parameters == ("p0",))
    assert first.cause == "not_reduced"
    assert first.summary.endswith("no collective of the step sent it: they sent p1")
