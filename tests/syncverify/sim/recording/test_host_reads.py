"""Bytes of the host that leave torch: files, pickles, shared memory, views, threads."""

import copy
import io
import pickle
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import syncverify
from syncverify.judge.ordering.races import Race
from syncverify.judge.ordering.remedies import disorders
from syncverify.trace.records import Access, TraceRecord

Program = Callable[[], object]


def late(device: str = "cuda") -> torch.Tensor:
    """Return memory of the host that a copy fills later."""
    return torch.ones(4, device=device).to("cpu", non_blocking=True)


def in_time() -> torch.Tensor:
    host = late()
    torch.cuda.synchronize()
    return host


def pinned() -> torch.Tensor:
    return torch.empty(4, pin_memory=True)


def save(value: object) -> None:
    torch.save(value, io.BytesIO())


def in_thread(target: Callable[..., object], *args: object) -> None:
    thread = threading.Thread(target=target, args=args)
    thread.start()
    thread.join()


def read_in_file(host: torch.Tensor) -> None:
    torch.save({"model": host}, io.BytesIO())


def read_in_pool(host: torch.Tensor) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(save, host).result()


# By the name of the function that a report names.
READS: dict[Callable[[torch.Tensor], object], str] = {
    read_in_file: "torch.save",
    pickle.dumps: "torch.save",
    copy.deepcopy: "aten.copy_.default",
    lambda host: host.share_memory_(): "Tensor.share_memory_",
    lambda host: host.tolist(): "aten.clone.default",
    lambda host: host.numpy(): "Tensor.numpy",
    np.from_dlpack: "Tensor.__dlpack__",
    lambda host: bytes(host.untyped_storage()): "aten._local_scalar_dense.default",
    lambda host: host.untyped_storage().resize_(99): "UntypedStorage.resize_",
    lambda host: in_thread(save, host): "torch.save",
    lambda host: in_thread(host.clone): "aten.clone.default",
    read_in_pool: "torch.save",
}
IDS = [f"{number}-{function}" for number, function in enumerate(READS.values())]


def names_of(trace: list[TraceRecord]) -> list[str]:
    """Return the second function of each race."""
    races = (each.found[0] for each in disorders([trace]))
    seconds = (each.second for each in races if isinstance(each, Race))
    return [each.operator for each in seconds if isinstance(each, Access)]


@pytest.mark.parametrize(("read", "name"), READS.items(), ids=IDS)
def test_bytes_that_leave_before_the_copy_arrives_are_a_race(
    traced, read: Callable[[torch.Tensor], object], name: str
) -> None:
    assert names_of(traced(lambda _: read(late("cpu")))) == [name]


@pytest.mark.parametrize("read", READS, ids=IDS)
def test_bytes_that_leave_after_the_copy_are_no_race(
    traced, read: Callable[[torch.Tensor], object]
) -> None:
    def program(_: int) -> None:
        host = late("cpu")
        torch.cuda.synchronize()
        read(host)

    assert names_of(traced(program)) == []


def viewed_before_the_copy() -> float:
    host = pinned()
    view = host.numpy()
    host.copy_(torch.ones(4, device="cuda"), non_blocking=True)
    return float(view.sum())


def view_that_is_gone_before_the_wait() -> float:
    view = late().numpy()
    total = float(view.sum())
    del view
    torch.cuda.synchronize()
    return total


def view_that_is_returned() -> object:
    return late().numpy()


def saved_beside_a_side_stream() -> None:
    state, side = torch.ones(4, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        state.add_(1)
    save(state)
    torch.cuda.current_stream().wait_stream(side)


def gathered_as_an_object() -> None:
    dist.all_gather_object([None, None], late())


LATE: tuple[Program, ...] = (
    viewed_before_the_copy,
    view_that_is_gone_before_the_wait,
    view_that_is_returned,
    saved_beside_a_side_stream,
    gathered_as_an_object,
)


@pytest.mark.parametrize("program", LATE, ids=lambda each: each.__name__)
def test_a_program_that_lends_or_sends_bytes_too_early_races(program: Program) -> None:
    (found,) = syncverify.simulate(program, ranks=2).violations
    assert found.violation.property == "streams_order_shared_memory"


def viewed_before_each_copy() -> float:
    host, total = pinned(), 0.0
    view = host.numpy()
    for _ in range(2):
        host.copy_(torch.ones(4, device="cuda"), non_blocking=True)
        torch.cuda.synchronize()
        total += float(view.sum())
    return total


def filled_through_a_view() -> torch.Tensor:
    host = pinned()
    host.numpy()[:] = 1
    return host.to(torch.device("cuda"), non_blocking=True)


def saved_by_a_thread_that_is_told_when() -> None:
    given = queue.Queue[torch.Tensor]()
    host = late()
    thread = threading.Thread(target=lambda: save(given.get()))
    thread.start()
    torch.cuda.synchronize()
    given.put(host)
    thread.join()


def saved_on_the_stream_of_the_state() -> None:
    state = torch.ones(4, device="cuda")
    dist.all_reduce(state)
    save(state)
    pickle.dumps(state)
    repr(state)


def sent_as_objects_in_time() -> None:
    dist.all_gather_object([None, None], in_time())


RIGHT: tuple[Program, ...] = (
    viewed_before_each_copy,
    filled_through_a_view,
    saved_by_a_thread_that_is_told_when,
    saved_on_the_stream_of_the_state,
    sent_as_objects_in_time,
)


@pytest.mark.parametrize("program", RIGHT, ids=lambda each: each.__name__)
def test_a_program_that_waits_before_it_reads_lent_bytes_is_right(
    program: Program,
) -> None:
    assert not syncverify.simulate(program, ranks=2).violations


def test_the_remedy_of_a_view_is_a_wait_before_its_read() -> None:
    (found,) = syncverify.simulate(viewed_before_the_copy, ranks=2).violations
    assert "before the view made at" in str(found.violation.evidence.remedy)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_a_checkpoint_waits_for_its_own_stream_alone(tmp_path: Path) -> None:
    def on_another_stream() -> None:
        state, side = torch.ones(4, device="cuda"), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            host = state.to("cpu", non_blocking=True)
        dcp.save({"a": host}, checkpoint_id=tmp_path / "one")

    def on_its_stream() -> None:
        dcp.save({"a": late()}, checkpoint_id=tmp_path / "two")

    (found,) = syncverify.simulate(on_another_stream, ranks=2).violations
    assert "torch.save" in found.violation.summary
    assert not syncverify.simulate(on_its_stream, ranks=2).violations
