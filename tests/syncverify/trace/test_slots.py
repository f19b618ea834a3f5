"""Slots: the places of gradients in the bytes that a collective sends."""

import torch

from syncverify.trace.regions import MemoryRegion, tensor_region
from syncverify.trace.slots import ParameterSlot, find_slots


def region(storage: int, start_byte: int, end_byte: int) -> MemoryRegion:
    return MemoryRegion(storage, start_byte, end_byte)


def test_slots_are_counted_from_the_start_of_the_contribution() -> None:
    gradients = {"w": region(0, 16, 32), "b": region(0, 32, 36), "v": region(1, 16, 20)}
    assert find_slots(gradients, [region(0, 8, 64)]) == (
        ParameterSlot("w", 8, 16),
        ParameterSlot("b", 24, 4),
    )


def test_tensors_of_one_contribution_lie_one_behind_the_other() -> None:
    gradients = {"w": region(0, 0, 16), "b": region(1, 4, 8)}
    found = find_slots(gradients, [region(1, 0, 12), region(0, 0, 16)])
    assert found == (ParameterSlot("b", 4, 4), ParameterSlot("w", 12, 16))


def test_gradient_that_begins_before_the_contribution_has_a_negative_offset() -> None:
    assert find_slots({"w": region(0, 0, 16)}, [region(0, 12, 20)]) == (
        ParameterSlot("w", -12, 16),
    )


def test_gradient_without_bytes_lies_nowhere() -> None:
    empty = tensor_region(torch.zeros(8)[4:4], 0)
    assert find_slots({"w": empty}, [region(0, 0, 32)]) == ()
