"""Gradients that are recognized by their values, and values that stay unknown."""

from dataclasses import replace

import pytest
import torch

from syncverify.judge.properties.sent import sent_by
from syncverify.judge.reference import reference
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.trace.records import CollectiveLaunch, Moment
from syncverify.trace.regions import MemoryRegion, ParameterSlot
from tests.syncverify.judge.properties.handmade_traces import launch

WEIGHT = ParameterSpec("w", (3,), ("R", "R"))
OTHER = ParameterSpec("other", (2,), ("R", "S0"))
SCENARIO = Scenario(MeshSpec((2, 2), ("dp", "tp")), (WEIGHT, OTHER), (2,), 2**20)
ORACLE = reference(SCENARIO, Capabilities())
BOTH = (0, 1)


def local(spec: ParameterSpec, rank: int, *micro_batches: int) -> torch.Tensor:
    return ORACLE.local(spec, rank, 0, micro_batches)


OWN, OF_OTHER = local(WEIGHT, 1, *BOTH), local(OTHER, 1, *BOTH)
ALONG_TP = OWN + local(WEIGHT, 0, *BOTH)
ZERO = torch.zeros(1)


def sent(
    *parts: torch.Tensor, names: tuple[str, ...] = (), micro_batch: int | None = None
) -> CollectiveLaunch:
    """Let rank 1 send values out of one buffer."""
    values = torch.cat([part.reshape(-1) for part in parts]).float()
    phase = "wait" if micro_batch is None else "backward"
    return launch(
        "dp",
        (1, 3),
        0,
        moment=Moment(phase, 0, micro_batch),
        numel=len(values),
        regions=(MemoryRegion(0, 0, 4 * len(values)),),
        contents=(values.numpy().tobytes(),),
        parameters=names,
    )


@pytest.mark.parametrize(
    ("launched", "names"),
    [
        (sent(OWN), ("w",)),
        (sent(OF_OTHER, OWN, ZERO), ("w", "other")),
        (sent(ALONG_TP), ("w",)),
        (sent(local(WEIGHT, 1, 0), micro_batch=0), ("w",)),
        (sent(local(WEIGHT, 1, 1), micro_batch=1), ("w",)),
        (sent(OWN, micro_batch=1), ("w",)),
        (sent(ZERO), ()),
        (sent(OWN / 2, names=("other",)), ("other",)),  # it lies there
    ],
)
def test_gradients_are_recognized(
    launched: CollectiveLaunch, names: tuple[str, ...]
) -> None:
    assert sent_by(ORACLE, 1, launched).names == names


@pytest.mark.parametrize(
    "launched",
    [
        sent(OWN / 2),
        sent(OWN.flip(0)),
        sent(OWN[:-1]),
        sent(OWN, torch.ones(1)),
        sent(local(WEIGHT, 3, *BOTH)),
        sent(OWN, micro_batch=0),
        launch("dp", (1, 3), 0, regions=(MemoryRegion(0, 0, 12),)),
    ],
)
def test_what_is_not_recognized_is_not_guessed(launched: CollectiveLaunch) -> None:
    assert sent_by(ORACLE, 1, launched).names is None


def believed(launched: CollectiveLaunch, *slots: ParameterSlot) -> list[str]:
    """Name the slots that are believed."""
    found = sent_by(ORACLE, 1, replace(launched, slots=slots)).slots
    return [slot.parameter for slot in found]


FIRST = ParameterSlot("other", 0, OF_OTHER.numel() * 4)
WHOLE = ParameterSlot("w", 0, OWN.numel() * 4)


def test_a_slot_in_which_another_gradient_lies_is_none() -> None:
    assert believed(sent(OF_OTHER, OWN), FIRST) == ["other"]
    assert believed(sent(OWN[:1], ZERO, OWN[2:]), FIRST) == ["other"]  # unknown
    assert believed(sent(OWN), FIRST, WHOLE) == ["w"]
    assert believed(sent(OF_OTHER), FIRST, WHOLE) == ["other"]  # it is shorter
    assert believed(sent(OF_OTHER), replace(WHOLE, offset_bytes=-4)) == []


def test_a_mean_may_be_divided_before_it_is_sent() -> None:
    mean = reference(SCENARIO, Capabilities(reduction="mean"))
    assert sent_by(mean, 1, sent(OWN / 4)).names == ("w",)
    assert sent_by(mean, 1, sent(OWN)).names == ("w",)
    assert sent_by(mean, 1, sent(OWN / 2)).names is None


def test_a_number_inside_of_a_longer_gradient_is_no_gradient_of_its_own() -> None:
    specs = tuple(
        ParameterSpec(f"p{n}", shape, ("R",), dtype=dtype)
        for n, (shape, dtype) in enumerate(
            [((), "bfloat16"), *[((), "float32")] * 9, ((4,), "bfloat16")]
        )
    )
    scenario = Scenario(MeshSpec((3,), ("dp",)), specs, (2,), 1)
    mean = reference(scenario, Capabilities(reduction="mean"))
    longer = mean.local(specs[10], 0, 0, BOTH) / 3
    forms = [
        mean.local(specs[0], 0, 0, each) / by for each in (BOTH, (1,)) for by in (1, 3)
    ]
    assert any(form in longer for form in forms), "the numbers meet by chance"
    launched = sent(longer, micro_batch=1)
    assert sent_by(mean, 0, launched).names == ("p10",)
    assert sent_by(mean, 0, launched).places == {("p10", 0)}
    assert sent_by(mean, 0, sent(forms[0], micro_batch=1)).names == ("p0",)
