"""Comparisons of values with those of plain PyTorch."""

import pytest
import torch

from studies.timemachine.comparing import WrongValueError, check_equal


def test_values_are_equal_up_to_rounding() -> None:
    one = torch.ones(2)
    check_equal("one", one + 1e-6, one)


@pytest.mark.parametrize("other", [torch.ones(2) + 1e-2, torch.ones(1)])
def test_another_value_or_shape_is_wrong(other: torch.Tensor) -> None:
    with pytest.raises(WrongValueError, match=r"^one is wrong: expected .*, observed "):
        check_equal("one", other, torch.ones(2))
