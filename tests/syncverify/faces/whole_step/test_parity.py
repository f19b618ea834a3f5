"""A whole step on a mesh is compared with one rank."""

import pytest

from syncverify import parity
from syncverify.judge.whole_step.causes import Scaled
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step import small_gpt
from tests.syncverify.faces.whole_step.small_gpt import batch, build, loss

# A linear layer of three dimensions returns a view, which the small model never changes.
pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")


@pytest.mark.long
@pytest.mark.parametrize(
    ("parallelize", "layouts"),
    [
        (small_gpt.fsdp, ["dp=2", "dp=4"]),
        (small_gpt.tensor_parallel_fsdp, ["dp=2,tp=2"]),
    ],
)
def test_a_right_step_is_right(parallelize: object, layouts: list[str]) -> None:
    result = parity(build, parallelize, batch, loss, layouts=layouts, clip=0.1)
    assert result.is_right, str(result)
    # All of a dozen parameters, in each step: gradients, values and states of AdamW.
    assert min(each.num_values for each in result.plays) > 100
    assert max(each.worst_error for each in result.plays) < 1e-13


@pytest.mark.long
def test_a_missing_divisor_is_found() -> None:
    result = parity(build, small_gpt.undivided_fsdp, batch, loss, layouts=["dp=4"])
    (mistake,) = result.mistakes
    assert mistake.finding.quantity is Quantity.GRADIENT
    assert mistake.finding.cause == Scaled(2.0, frozenset({frozenset({"dp"})}))
    assert str(mistake.layout) == "dp=2"
    # With one layer less, the last layer has another name.
    assert dict(mistake.sizes) == {"width": 2, "layers": 1}
    assert "multiplied by 2, the number of ranks of `dp`" in str(result)
