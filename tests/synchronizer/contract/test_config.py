"""Values that options of a config do not take are named, with those that they take."""

from typing import Any

import pytest
import torch

from syncverify.synchronizer import InvalidArgumentError, SynchronizerConfig
from tests.programs import lines

AXES = "keyed by the names or indices of mesh axes"
DTYPES = "a floating point dtype of 2 bytes or more, or None"
# Option, value, and what is expected.
REFUSED: list[tuple[str, Any, str]] = [
    ("axis_reductions", "avg", "a mapping from mesh axes to reductions"),
    ("axis_reductions", {-1: "avg"}, AXES),
    ("axis_reductions", {True: "avg"}, AXES),
    ("process_group_reduction", "none", "one of 'sum', 'avg'"),
    ("scaling", "never", "one of 'after', 'split'"),
    ("unused", "ignore", "one of 'error', 'zeros', 'keep_none'"),
    ("mode", "scatter", "one of 'all_reduce', 'reduce_scatter'"),
    ("unequal_replicas", "ignore", "one of 'error', 'broadcast', 'keep'"),
    ("gradient_hook", "c", "one of 'python', 'cpp'"),
    ("wire_dtype", "bfloat16", DTYPES),
    ("wire_dtype", torch.int32, DTYPES),
    ("wire_dtype", torch.float8_e4m3fn, DTYPES),
    ("wire_dtype", torch.complex64, DTYPES),
]


@pytest.mark.parametrize(("option", "given", "expected"), REFUSED)
def test_another_value_is_refused(option: str, given: Any, expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SynchronizerConfig(**{option: given})
    assert lines(caught) == [
        f"{option} is not {expected}",
        f"  expected: {expected}",
        f"  got:      {option}={given!r}",
        "  where:    rank 0 of 1",
        f"  hint: {InvalidArgumentError.hint}",
    ]


def test_the_axis_of_an_unknown_reduction_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^axis_reductions\['dp'\] is not"):
        SynchronizerConfig(axis_reductions={"dp": "mean"})


def test_the_caller_cannot_change_reductions_later() -> None:
    given = {"dp": "avg"}
    config = SynchronizerConfig(axis_reductions=given)
    given["tp"] = "nonsense"
    assert config.axis_reductions == {"dp": "avg"}
