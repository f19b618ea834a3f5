"""The example with a mistake of wiring."""

from dataclasses import replace
from typing import Any

import pytest
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

from examples import parity_gpt
from syncverify.faces.whole_step.described import described
from syncverify.faces.whole_step.parity import comparisons
from syncverify.judge.whole_step.causes import LacksSum


@pytest.mark.long(30)
def test_norms_of_heads_lack_a_sum() -> None:
    *_, last = comparisons(described(parity_gpt))
    (mistake,) = last.mistakes
    assert mistake.finding.cause == LacksSum(frozenset({"tp"}))
    assert str(mistake.layout) == "dp=1,tp=2"
    assert (mistake.sizes, mistake.num_rows) == ((("layers", 1),), 1)
    assert [each.name for each in mistake.finding.differences] == [
        "blocks.0.attention.q_norm.weight",
        "blocks.0.attention.k_norm.weight",
    ]


def _repaired(model: Any, mesh: Any) -> None:
    norm = SequenceParallel(sequence_dim=2, use_local_output=True)
    plan = {"attention.q_norm": norm, "attention.k_norm": norm}
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], plan)
    parity_gpt.parallelize(model, mesh)


@pytest.mark.long(10)
def test_the_repaired_training_is_right() -> None:
    found = described(parity_gpt)
    training = replace(found.training, parallelize=_repaired)
    *_, last = comparisons(replace(found, training=training))
    assert last.is_right, str(last)
