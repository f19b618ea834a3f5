"""Variations of the weights of a batch."""

from __future__ import annotations

import pytest
import torch

from syncverify.whole_step.data import EmptyPart, UnequalTokens


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3), (8, 5), (2, 4, 2)])
def test_halves_of_the_rows_keep_unequal_numbers_of_tokens(
    shape: tuple[int, ...],
) -> None:
    batch = {"mask": torch.ones(shape), "x": torch.zeros(shape)}
    changed = UnequalTokens("mask").changed(batch)
    first, second = changed["mask"].chunk(2)
    assert 0 < first.sum() < second.sum()
    assert changed["x"] is batch["x"]
    assert batch["mask"].all(), "the batch of the user stays as it is"


def test_weights_of_the_user_stay_as_they_are_where_they_count() -> None:
    batch = {"mask": torch.tensor([[0.0, 2.0], [3.0, 0.0]])}
    changed = UnequalTokens("mask").changed(batch)["mask"]
    assert changed.tolist() == [[0.0, 0.0], [3.0, 0.0]]


@pytest.mark.parametrize(("num_parts", "num_empty"), [(2, 4), (4, 2), (8, 1)])
def test_the_last_part_is_padding(num_parts: int, num_empty: int) -> None:
    batch = {"mask": torch.ones(8, 3)}
    changed = EmptyPart("mask", num_parts).changed(batch)["mask"]
    assert changed[8 - num_empty :].sum() == 0
    assert changed[: 8 - num_empty].all()
