"""Each raising operator raises in backward, and is distinguished from other errors."""

import pytest
import torch

from syncverify.program.graphs.errors import (
    RAISES,
    FailingOperatorError,
    is_from_failing_operator,
)

every_operator = pytest.mark.parametrize("word", RAISES)


@every_operator
def test_the_value_stays_and_backward_raises(word: str) -> None:
    parameter = torch.full((3,), 2.0, requires_grad=True)
    term = RAISES[word]((parameter * 5).sum())
    assert term.item() == 30
    with pytest.raises((FailingOperatorError, RuntimeError)) as caught:
        term.backward()
    assert is_from_failing_operator(caught.value)


@every_operator
def test_earlier_gradients_stay_accumulated(word: str) -> None:
    early, late = (torch.ones(2, requires_grad=True) for _ in range(2))
    raising = RAISES[word](late.sum())  # made first, so its backward comes last
    with pytest.raises((FailingOperatorError, RuntimeError)):
        (raising + (early * 3).sum()).backward()
    assert early.grad is not None
    assert late.grad is None


@pytest.mark.parametrize(
    "error",
    [RuntimeError("gloo: connection closed"), ValueError("in-place"), KeyError(1)],
)
def test_other_errors_are_not_planned(error: Exception) -> None:
    assert not is_from_failing_operator(error)
