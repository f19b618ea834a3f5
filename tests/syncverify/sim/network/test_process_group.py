"""Collectives are late on purpose, and strict: results of waits, and ends of a run."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.network.rendezvous import Mismatch
from syncverify.trace.records import CollectiveLaunch, CollectiveWait

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


def test_forgotten_wait_leaves_the_old_value(on_ranks: OnRanks) -> None:
    def program(rank: int) -> float:
        tensor = own(rank, 1)
        dist.all_reduce(tensor, async_op=True)
        dist.barrier()
        return tensor.item()

    assert on_ranks(2, program) == [1.0, 10.0]


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


def test_polling_lets_others_move_and_delivers(on_ranks: OnRanks) -> None:
    def program(rank: int) -> tuple[bool, float]:
        tensor = own(rank, 1)
        work = dist.all_reduce(tensor, async_op=True)
        started_done = work.is_success()
        while not work.is_completed():
            pass
        return started_done, tensor.item()

    assert on_ranks(3, program) == [(False, 111.0)] * 3


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


def test_a_future_that_nobody_waits_for_brings_nothing(on_ranks: OnRanks) -> None:
    def program(rank: int) -> float:
        tensor = own(rank, 1)
        dist.all_reduce(tensor, async_op=True).get_future()
        return float(tensor.item())

    assert on_ranks(2, program) == [1.0, 10.0]


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


def test_futures_of_the_subject_are_done_when_it_says_so(on_ranks: OnRanks) -> None:
    def program(rank: int) -> tuple[bool, bool]:
        own_future = torch.futures.Future[int]()
        together = torch.futures.collect_all([own_future])
        before = together.done()
        own_future.set_result(rank)
        return before, together.done()

    assert on_ranks(2, program) == [(False, True)] * 2


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


def test_functional_result_waits_when_it_is_first_used(on_ranks: OnRanks) -> None:
    def program(rank: int) -> float:
        late = funcol.all_reduce(own(rank, 1), "sum", dist.group.WORLD)
        return float((late + 1).item())

    assert on_ranks(2, program) == [12.0, 12.0]


# Ranks that disagree.


def mismatch(program: Callable[[int], Any], size: int = 2) -> Mismatch:
    machine = SimulatedMachine(size)
    threads, stall = machine.run(program)
    assert stall is None
    assert not any(isinstance(thread.error, Exception) for thread in threads)
    assert machine.world.mismatch is not None
    return machine.world.mismatch


F32 = torch.float32
DISAGREEMENTS: dict[str, tuple[Callable[[int], Any], str, str]] = {
    "operation": (
        lambda rank: (
            dist.broadcast(torch.ones(2), 0) if rank else dist.all_reduce(torch.ones(2))
        ),
        "all_reduce SUM of 2 x float32",
        "broadcast of 2 x float32",
    ),
    "numel": (
        lambda rank: dist.all_reduce(torch.ones(2 + rank)),
        "all_reduce SUM of 2 x float32",
        "all_reduce SUM of 3 x float32",
    ),
    "dtype": (
        lambda rank: dist.all_reduce(
            torch.ones(2, dtype=torch.bfloat16 if rank else F32)
        ),
        "all_reduce SUM of 2 x float32",
        "all_reduce SUM of 2 x bfloat16",
    ),
    "reduce op": (
        lambda rank: dist.all_reduce(
            torch.ones(2), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM
        ),
        "all_reduce SUM of 2 x float32",
        "all_reduce MAX of 2 x float32",
    ),
    "root": (
        lambda rank: dist.broadcast(torch.ones(2), src=rank),
        "broadcast of 2 x float32",
        "broadcast of 2 x float32",
    ),
}


@pytest.mark.parametrize(
    ("program", "first", "second"), DISAGREEMENTS.values(), ids=DISAGREEMENTS.keys()
)
def test_disagreement_ends_the_run_and_names_both_ranks(
    program: Callable[[int], Any], first: str, second: str
) -> None:
    found = mismatch(program)
    assert found.ranks == (0, 1)
    assert found.lines[0].startswith(f"rank 0: {first}")
    assert found.lines[1].startswith(f"rank 1: {second}")
    for line in found.lines:
        assert f", at {PLACE}:" in line


def test_disagreement_is_reported_by_global_ranks() -> None:
    def program(rank: int) -> None:
        pair = dist.new_group([1, 3])
        if rank in {1, 3}:
            dist.all_reduce(torch.ones(rank), group=pair)

    found = mismatch(program, size=4)
    assert found.ranks == (1, 3)


def test_ranks_that_disagree_exchange_nothing() -> None:
    tensors = [torch.ones(2), torch.ones(3)]
    mismatch(lambda rank: dist.all_reduce(tensors[rank]))
    assert [tensor.tolist() for tensor in tensors] == [[1, 1], [1, 1, 1]]


def test_swapped_collectives_of_equal_size_meet_silently(on_ranks: OnRanks) -> None:
    """As on real hardware: no check of shapes can see it, so values must."""

    def program(rank: int) -> list[float]:
        tensors = [own(rank, 1), -own(rank, 1)]
        ordered = tensors if rank else tensors[::-1]
        for tensor in ordered:
            dist.all_reduce(tensor)
        return [tensor.item() for tensor in tensors]

    assert on_ranks(2, program) == [[-9.0, 9.0], [9.0, -9.0]]


ONE = torch.ones(1)
WHOLE = torch.ones(2, dtype=torch.int64)
NOT_SIMULATED = {
    "AVG of bool": lambda: dist.all_reduce(WHOLE.bool(), dist.ReduceOp.AVG),
    "PREMUL_SUM of int64": lambda: dist.all_reduce(
        WHOLE, dist._make_nccl_premul_sum(2.0)
    ),
    "collectives of sparse tensors": lambda: dist.all_reduce(ONE.to_sparse()),
    "recv from any rank": lambda: dist.recv(ONE),
    "monitored_barrier": lambda: dist.group.WORLD.monitored_barrier(),
}


@pytest.mark.parametrize(
    ("name", "issue"), NOT_SIMULATED.items(), ids=NOT_SIMULATED.keys()
)
def test_what_is_not_simulated_is_said(
    on_ranks: OnRanks, name: str, issue: Callable[[], Any]
) -> None:
    """Not as an error of the subject, which would be a second violation."""
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        on_ranks(2, lambda rank: issue())
    assert str(caught.value).startswith(
        f"the sim backend does not simulate {name}, used at {PLACE}:"
    )


def test_absent_rank_ends_the_run_at_once() -> None:
    def program(rank: int) -> None:
        if rank != 1:
            dist.all_reduce(torch.ones(1))

    machine = SimulatedMachine(3, hang_timeout_seconds=3600)
    _, stall = machine.run(program)
    assert stall is not None
    assert (stall.kind, stall.ranks) == ("deadlock", (1,))
    assert stall.details[1] == "rank 1: has finished"
    for rank in (0, 2):
        assert stall.details[rank].startswith(
            f"rank {rank}: waits for rank 1 in all_reduce #0 over ranks [0, 1, 2], "
            f"on stream default, at {PLACE}:"
        )


def test_collectives_are_recorded_with_their_waits() -> None:
    def program(rank: int) -> None:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        dist.barrier()
        work.wait()

    machine = SimulatedMachine(2)
    machine.run(program)
    for recorder in machine.recorders:
        records = [
            (type(e).__name__, getattr(e, "operation", ""), e.sequence)
            for e in recorder.trace
            if isinstance(e, (CollectiveLaunch, CollectiveWait))
        ]
        assert records == [
            ("CollectiveLaunch", "all_reduce", 0),
            ("CollectiveLaunch", "barrier", 1),
            ("CollectiveWait", "", 1),
            ("CollectiveWait", "", 0),
        ]


def test_a_group_that_nobody_used_can_be_destroyed(traced) -> None:
    def program(_: int) -> None:
        dist.destroy_process_group(dist.new_group([0, 1]))

    traced(program, num_ranks=2)


@pytest.mark.parametrize("backend", ["gloo", "nccl", "cpu:gloo,cuda:nccl", None])
def test_a_group_of_any_library_is_one_of_the_machine(
    on_ranks: OnRanks, backend: str | None
) -> None:
    def program(_: int) -> float:
        group = dist.new_group([0, 1], backend=backend)
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        dist.destroy_process_group(group)
        return tensor.item()

    assert on_ranks(2, program) == [2, 2]
