"""The recorder of a rank: storages, launches with their contents, and returns of calls."""

import struct

import torch

from syncverify.trace.recorder import Recorder, StorageNumbers
from syncverify.trace.records import (
    CollectiveLaunch,
    CollectiveWait,
    Moment,
    SubjectCall,
    SubjectReturn,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.slots import ParameterSlot
from syncverify.trace.source_lines import SourceLine


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
    fields = {
        "ranks": (0, 1),
        "reduce_op": "SUM",
        "source": SourceLine("a.py", 1, "f"),
        **changes,
    }
    return recorder.launch("all_reduce", list(tensors), **fields)


def test_launch_records_the_contribution() -> None:
    recorder = Recorder()
    gradients = {"w": floats(8), "v": floats(2)}
    recorder.watch(lambda: gradients)
    recorder.enter(Moment("backward", 1, 0))
    buffer = gradients["w"]
    recorder.wait(launch(recorder, buffer[2:6], buffer[6:]))
    assert recorder.trace == [
        SubjectCall(Moment("backward", 1, 0)),
        CollectiveLaunch(
            moment=Moment("backward", 1, 0),
            ranks=(0, 1),
            sequence=0,
            operation="all_reduce",
            reduce_op="SUM",
            dtype="float32",
            numel=6,
            regions=(MemoryRegion(0, 8, 24), MemoryRegion(0, 24, 32)),
            parameters=("w",),
            source=SourceLine("a.py", 1, "f"),
            slots=(ParameterSlot("w", -8, 32),),
        ),
        CollectiveWait(Moment("backward", 1, 0), (0, 1), 0),
    ]


def test_sequences_count_per_communicator() -> None:
    recorder = Recorder()
    issued = [
        launch(recorder, floats(1), ranks=ranks)
        for ranks in ((0, 1), (0, 2), (0, 1), (0, 2), (0, 1))
    ]
    assert [event.sequence for event in issued] == [0, 0, 1, 1, 2]
    named = [launch(recorder, floats(1), communicator=name) for name in "aba"]
    assert [event.key for event in named] == [
        ("a", (0, 1), 0),
        ("b", (0, 1), 0),
        ("a", (0, 1), 1),
    ]


def test_gradient_bound_later_is_found_in_its_bucket() -> None:
    """Gradients are read at each launch, as the subject may rebind them."""
    recorder = Recorder()
    gradients: dict[str, torch.Tensor] = {}
    recorder.watch(lambda: gradients)
    bucket = floats(8)
    assert launch(recorder, bucket).parameters == ()
    gradients["w"] = bucket[4:]
    assert launch(recorder, bucket).parameters == ("w",)
    assert launch(recorder, bucket[:4]).parameters == ()


def test_contents_are_as_they_were_when_it_was_issued() -> None:
    sent, column = torch.arange(4.0), torch.arange(6.0).view(3, 2)[:, 1]
    event = launch(Recorder(), sent[1:], column, floats(0))
    sent.zero_()
    assert event.contents == (
        struct.pack("3f", 1, 2, 3),
        struct.pack("5f", 1, 2, 3, 4, 5),  # with the gaps
        b"",
    )


def test_contents_are_left_out_where_they_are_many() -> None:
    assert launch(Recorder(), floats(2**14)).contents != ()
    assert launch(Recorder(), floats(2**14), floats(1)).contents == ()


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


def test_places_of_gradients_are_noted_as_a_call_returns() -> None:
    recorder = Recorder()
    gradients: dict[str, torch.Tensor] = {}
    recorder.watch(lambda: gradients)
    with recorder.calling(Moment("bind", 0)):
        gradients["w"] = floats(8)[4:]
    returned = recorder.trace[-1]
    assert isinstance(returned, SubjectReturn)
    assert returned.gradients == {"w": MemoryRegion(0, 16, 32)}


def test_a_launch_is_shown_with_arguments_ranks_and_line() -> None:
    event = launch(Recorder(), floats(5))
    assert (
        str(event) == "all_reduce SUM of 5 x float32 over ranks [0, 1], at a.py:1 in f"
    )
    assert event.signature == ("all_reduce", "SUM", "float32", 5)
    assert str(Moment("wait", 2)) == "step 2, wait"
    assert str(Moment("backward", 2, 1)) == "step 2, micro-batch 1, backward"
