"""Results of dropped handles: the memory may be gone before the collective writes to it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.sim.device.nccl_names import Promises
from syncverify.sim.network import communicator

OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]


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
