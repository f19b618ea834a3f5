"""Right trainings differ from one rank by rounding alone."""

from __future__ import annotations

import pytest
from torch import nn

from syncverify import parity
from syncverify.whole_step.causes import OwnParts
from tests.syncverify.whole_step import right_programs
from tests.syncverify.whole_step.right_programs import RIGHT, Right

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module"),
]


@pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.name)
def test_a_right_training_is_silent(right: Right) -> None:
    result = parity(
        right.build,
        right.parallelize,
        right.batch,
        right.loss,
        layouts=[right.layout],
        device="cpu",
        **right.more,
    )
    assert result.is_right, str(result)
    plain = [each for each in result.plays if each.variation is None]
    assert all(each.num_values >= 15 for each in plain)
    assert all(not each.absent and not each.added for each in result.plays)
    num_varied = len(result.plays) - len(plain)
    assert num_varied == (2 if "scaler" in right.more else 0)
    assert all(each.is_tried for each in result.plays)
    assert max(each.worst_error for each in plain) <= (0 if right.is_exact else 1e-12)


def test_statistics_of_each_ranks_own_rows_are_another_function() -> None:
    """A batch norm in training is no mistake of a gradient, and differs from one rank."""

    def build() -> nn.Module:
        return right_programs.normalized().train()

    result = parity(
        build,
        right_programs.ddp,
        right_programs.rows,
        right_programs.loss,
        layouts=["dp=2"],
        device="cpu",
    )
    (mistake,) = result.mistakes
    assert mistake.finding.cause == OwnParts()
    assert len(mistake.finding.differences) > 3
    assert "as with a batch norm" in str(result)
