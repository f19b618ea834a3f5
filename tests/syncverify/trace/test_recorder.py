"""The recorder of a rank: storages, launches with their contents, and returns of calls."""

import struct

import torch

from syncverify.trace.recorder import Recorder, StorageNumbers
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.regions import MemoryRegion, find_slots


def floats(count: int) -> torch.Tensor:
    return torch.zeros(count)


def test_freed_storage_loses_its_number() -> None:
    """The allocator hands an address out again at once; the number must not follow."""
    numbers = StorageNumbers()
    addresses, seen = set(), []
    for _ in range(20):
        tensor = floats(1000)
        addresses.add(tensor.data_ptr())
        seen.append(numbers.region(tensor).storage)
        del tensor
    # Some addresses came back, and no number did.
    assert len(addresses) < 20
    assert seen == list(range(20))


def launch(
    recorder: Recorder, *tensors: torch.Tensor, **changes: object
) -> CollectiveLaunch:
    fields = {"ranks": (0, 1), "reduce_op": "SUM", **changes}
    return recorder.launch("all_reduce", list(tensors), **fields)


def test_contents_are_as_they_were_when_it_was_issued() -> None:
    sent, column = torch.arange(4.0), torch.arange(6.0).view(3, 2)[:, 1]
    event = launch(Recorder(), sent[1:], column, floats(0))
    sent.zero_()
    assert event.contents == (
        struct.pack("3f", 1, 2, 3),
        struct.pack("5f", 1, 2, 3, 4, 5),  # with the gaps
        b"",
    )


class Wrapper(torch.Tensor):
    """Looks like a tensor and has no memory, as a DTensor."""

    @staticmethod
    def __new__(cls) -> "Wrapper":
        return torch.Tensor._make_wrapper_subclass(cls, (2,))

    @classmethod
    def __torch_dispatch__(cls, *_: object) -> object:
        return NotImplemented


def test_contents_that_are_not_there_are_left_out() -> None:
    given_back = floats(4)
    given_back.untyped_storage().resize_(0)
    for tensor in (given_back, torch.zeros(2, device="meta"), Wrapper()):
        assert launch(Recorder(), tensor).contents == ()


def region(storage: int, start_byte: int, end_byte: int) -> MemoryRegion:
    return MemoryRegion(storage, start_byte, end_byte)


def test_gradient_without_bytes_lies_nowhere() -> None:
    assert find_slots({"w": region(0, 16, 16)}, [region(0, 0, 32)]) == ()
