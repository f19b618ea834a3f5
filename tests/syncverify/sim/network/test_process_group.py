"""Collectives are late on purpose, and strict: results of waits, and ends of a run."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.sim.device.nccl_names import Promises
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.network import communicator
from syncverify.sim.network.rendezvous import Mismatch

OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]
PLACE = "tests/syncverify/sim/network/test_process_group.py"


def own(rank: int, numel: int = 3) -> torch.Tensor:
    """A tensor that no other rank has, entries apart from each other."""
    return torch.arange(numel, dtype=torch.float32) + 10.0**rank


def test_result_is_there_only_after_wait(on_ranks: OnRanks) -> None:
    def program(rank: int) -> tuple[float, float]:
        tensor = own(rank, 1)
        work = dist.all_reduce(tensor, async_op=True)
        dist.barrier()  # all ranks have issued it
        before = tensor.item()
        work.wait()
        return before, tensor.item()

    assert on_ranks(2, program) == [(1.0, 11.0), (10.0, 11.0)]


def test_write_in_flight_is_overwritten(on_ranks: OnRanks) -> None:
    def program(rank: int) -> float:
        tensor = own(rank, 1)
        work = dist.all_reduce(tensor, async_op=True)
        tensor.fill_(-1)
        work.wait()
        return tensor.item()

    assert on_ranks(2, program) == [11.0, 11.0]


def test_results_are_written_uncounted_as_by_real_groups(on_ranks: OnRanks) -> None:
    def program(rank: int) -> int:
        tensor = own(rank)
        dist.all_reduce(tensor, async_op=True).wait()
        return tensor._version

    assert on_ranks(2, program) == [own(0)._version] * 2


def test_waiting_twice_delivers_once(on_ranks: OnRanks) -> None:
    def program(rank: int) -> float:
        tensor = own(rank, 1)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        tensor.fill_(-1)
        work.wait()
        return tensor.item()

    assert on_ranks(2, program) == [-1.0, -1.0]


def test_waits_may_come_in_another_order(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[float]:
        tensors = [own(rank, 1), 2 * own(rank, 1)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        ordered = works if rank else works[::-1]
        for work in ordered:
            work.wait()
        return [tensor.item() for tensor in tensors]

    assert on_ranks(2, program) == [[11.0, 22.0]] * 2


def test_a_future_is_done_at_once_and_brings_its_result_when_it_is_waited_for(
    on_ranks: OnRanks,
) -> None:
    def program(rank: int) -> tuple[bool, float, float]:
        tensor = own(rank, 1)
        future = dist.all_reduce(tensor, async_op=True).get_future()
        done, before = future.done(), tensor.item()
        (result,) = future.wait()
        assert result is tensor
        return done, before, tensor.item()

    assert on_ranks(2, program) == [(True, 1.0, 11.0), (True, 10.0, 11.0)]


def test_callbacks_of_a_future_run_once_and_in_turn(on_ranks: OnRanks) -> None:
    def program(rank: int) -> tuple[list[str], float, float]:
        called: list[str] = []

        def note(name: str, factor: float) -> Callable[[Any], float]:
            def call(before: torch.futures.Future[Any]) -> float:
                called.append(name)
                value = before.value()
                return factor * float(value[0] if isinstance(value, list) else value)

            return call

        work = dist.all_reduce(own(rank, 1), async_op=True)
        first = work.get_future().then(note("first", 2.0))
        second = first.then(note("second", 3.0))
        work.get_future().add_done_callback(note("third", 1.0))
        assert called == []
        work.wait()
        return called, first.wait(), second.value()

    expected = (["first", "second", "third"], 22.0, 66.0)
    assert on_ranks(2, program) == [expected] * 2


def test_an_error_of_a_callback_is_raised_by_its_future(on_ranks: OnRanks) -> None:
    def program(rank: int) -> float:
        tensor = own(rank, 1)
        future = dist.all_reduce(tensor, async_op=True).get_future()
        failed = future.then(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failed.wait()
        return float(future.wait()[0].item())

    assert on_ranks(2, program) == [11.0, 11.0]


@pytest.mark.parametrize("wait", [
    torch.futures.wait_all,
    lambda futures: [f.wait() for f in torch.futures.collect_all(futures).wait()],
])  # fmt: skip
def test_futures_are_waited_for_together(on_ranks: OnRanks, wait: Any) -> None:
    def program(rank: int) -> list[float]:
        tensors = [own(rank, 1), 2 * own(rank, 1)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        results = wait([work.get_future() for work in works])
        assert [result[0] for result in results] == tensors
        return [tensor.item() for tensor in tensors]

    assert on_ranks(2, program) == [[11.0, 22.0]] * 2


# Dropped handles: the memory may be gone before the collective writes to it.


@pytest.fixture
def forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the handle alone hold the results, in each group."""
    promises = Promises(
        orders_by_future=False, keeps_results=False, orders_messages=False
    )
    monkeypatch.setattr(communicator, "promises_of", lambda _: promises)


@pytest.mark.usefixtures("forgetting")
def test_a_handle_answers_as_the_work_that_it_stands_for(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[Any]:
        tensor = torch.full((1,), rank + 1.0)
        handle = dist.all_reduce(tensor, async_op=True)
        answers = [handle.is_success(), handle.exception(), str(handle.launched_at)[:5]]
        while not handle.is_completed():
            pass
        answers += [handle.is_success(), handle.result()[0] is tensor, tensor.item()]
        handle.block_current_stream()
        handle.synchronize()
        return [*answers, handle.wait()]

    expected = [False, None, "tests", True, True, 3.0, True]
    assert on_ranks(2, program) == [expected] * 2


@pytest.mark.usefixtures("forgetting")
def test_a_future_and_its_callback_hold_the_results(on_ranks: OnRanks) -> None:
    def program(rank: int) -> tuple[list[float], float]:
        def gather(value: float) -> Any:
            parts, mine = torch.zeros(2), torch.full((1,), value)
            return dist.all_gather_single(parts, mine, async_op=True).get_future()

        (parts,) = gather(rank + 1.0).wait()
        total = gather(rank + 1.0).then(lambda done: done.value()[0].sum())
        return parts.tolist(), float(total.wait())

    assert on_ranks(2, program) == [([1, 2], 3)] * 2


@pytest.mark.usefixtures("forgetting")
def test_ranks_agree_with_one_that_has_dropped_its_handle(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[float]:
        parts = [torch.zeros(1) for _ in range(2)]
        mine = [torch.full((1,), 10.0 * rank + to) for to in range(2)]
        last = parts[1]
        dist.all_to_all(parts, mine, async_op=True)
        del parts
        dist.barrier()
        torch.cuda.synchronize()
        return last.tolist()

    assert on_ranks(2, program) == [[10.0], [11.0]]


# Ranks that disagree.


def mismatch(program: Callable[[int], Any], size: int = 2) -> Mismatch:
    machine = SimulatedMachine(size)
    threads, stall = machine.run(program)
    assert stall is None
    assert not any(isinstance(thread.error, Exception) for thread in threads)
    assert machine.world.mismatch is not None
    return machine.world.mismatch


def test_disagreement_ends_the_run_and_names_both_ranks() -> None:
    def program(rank: int) -> None:
        tensor = torch.ones(2)
        if rank == 0:
            dist.all_reduce(tensor)
        else:
            dist.broadcast(tensor, 0)

    found = mismatch(program)
    assert found.ranks == (0, 1)
    assert found.lines[0].startswith("rank 0: all_reduce SUM of 2 x float32")
    assert found.lines[1].startswith("rank 1: broadcast of 2 x float32")
    for line in found.lines:
        assert f", at {PLACE}:" in line


def test_disagreement_is_reported_by_global_ranks() -> None:
    def program(rank: int) -> None:
        pair = dist.new_group([1, 3])
        if rank in {1, 3}:
            dist.all_reduce(torch.ones(rank), group=pair)

    found = mismatch(program, size=4)
    assert found.ranks == (1, 3)


def test_swapped_collectives_of_equal_size_meet_silently(on_ranks: OnRanks) -> None:
    """As on real hardware: no check of shapes can see it, so values must."""

    def program(rank: int) -> list[float]:
        tensors = [own(rank, 1), -own(rank, 1)]
        ordered = tensors if rank else tensors[::-1]
        for tensor in ordered:
            dist.all_reduce(tensor)
        return [tensor.item() for tensor in tensors]

    assert on_ranks(2, program) == [[-9.0, 9.0], [9.0, -9.0]]


def test_absent_rank_ends_the_run_at_once() -> None:
    def program(rank: int) -> None:
        if rank != 1:
            dist.all_reduce(torch.ones(1))

    machine = SimulatedMachine(3, hang_timeout_seconds=3600)
    _, stall = machine.run(program)
    assert (stall.kind, stall.ranks) == ("deadlock", (1,))
    assert stall.details[1] == "rank 1: has finished"
    for rank in (0, 2):
        assert stall.details[rank].startswith(
            f"rank {rank}: waits for rank 1 in all_reduce #0 over ranks [0, 1, 2], "
            f"on stream default, at {PLACE}:"
        )
