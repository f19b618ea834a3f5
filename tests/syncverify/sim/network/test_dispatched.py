"""Dispatch modes of a program see the collectives of simulated groups as torch's operators."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode

from syncverify.trace.records import Access, CollectiveLaunch
from tests.free_programs import play

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")

OPS = torch.ops.c10d


class Seen(TorchDispatchMode):
    """Lists the collectives that it sees, and their groups."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self.operators: list[Any] = []
        self.groups: list[dist.ProcessGroup] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func.namespace == "c10d":
            self.operators.append(func)
            names = [each.name for each in func._schema.arguments]
            boxed: Any = args[names.index("process_group")]
            self.groups.append(dist.ProcessGroup.unbox(boxed))
        return func(*args, **(kwargs or {}))


def ones(count: int = 2) -> torch.Tensor:
    return torch.ones(count, device="cuda" if dist.get_backend() == "nccl" else "cpu")


def all_to_all(_: int) -> None:
    dist.all_to_all([ones(), ones()], [ones(), ones()])


def scatter(rank: int) -> None:
    dist.scatter(ones(), [ones(), ones()] if rank == 0 else None)


def message(rank: int) -> None:
    if rank == 0:
        dist.send(ones(), 1)
    else:
        dist.recv(ones(), 0)


CALLS: dict[str, tuple[Callable[[int], Any], Any]] = {
    "all_reduce": (lambda _: dist.all_reduce(ones()), OPS.allreduce_),
    "all_gather_into_tensor": (
        lambda _: dist.all_gather_into_tensor(ones(4), ones()),
        OPS._allgather_base_,
    ),
    "all_to_all": (all_to_all, OPS.alltoall_),
    "scatter": (scatter, OPS.scatter_),
}


@pytest.mark.parametrize(("call", "operator"), CALLS.values(), ids=CALLS)
def test_comm_debug_mode_counts_collectives(
    call: Callable[[int], Any], operator: Any
) -> None:
    counts: list[Any] = []

    def program(rank: int) -> None:
        with CommDebugMode() as mode:
            call(rank)
        counts.append(mode.get_comm_counts())
        call(rank)  # without a mode, no operator

    play(program, 2, device="cuda")
    assert counts == [{operator: 1}] * 2


def test_a_functional_collective_is_counted_once() -> None:
    counts: list[Any] = []

    def program(_: int) -> None:
        with CommDebugMode() as mode:
            funcol.all_reduce(ones(), "sum", dist.group.WORLD).sum()
        counts.append(mode.get_comm_counts())

    play(program, 2)
    assert counts == [{torch.ops.c10d_functional.all_reduce: 1}] * 2


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_all_modes_see_the_group_and_the_result_is_right(device: str) -> None:
    modes: list[Seen] = []
    sums: list[list[float]] = []

    def program(rank: int) -> None:
        group = dist.new_group([0, 1])
        with Seen() as outer, Seen() as inner:
            value = ones()
            dist.all_reduce(value, group=group, async_op=True).wait()
            message(rank)
        modes.extend((outer, inner))
        assert outer.groups == inner.groups == [group, dist.group.WORLD]
        sums.append(value.tolist())

    play(program, 2, device=device)
    assert sums == [[2.0, 2.0]] * 2
    expected = [OPS.allreduce_.default, OPS.send.default]
    assert modes[0].operators == modes[1].operators == expected
    assert modes[2].operators[1] == OPS.recv_.default


def test_a_mode_changes_nothing_in_the_trace() -> None:
    def trace(*, with_mode: bool) -> list[Any]:
        def program(_: int) -> None:
            value = torch.ones(2, device="cuda")
            with Seen() if with_mode else torch.no_grad():
                work = dist.all_reduce(value, async_op=True)
                with torch.cuda.stream(torch.cuda.Stream()):
                    value.add_(1)
                work.wait()

        records = play(program, 2, device="cuda").recorders[0].trace
        return [
            (type(each), each.operator if isinstance(each, Access) else each.operation)
            for each in records
            if isinstance(each, Access | CollectiveLaunch)
        ]

    assert trace(with_mode=True) == trace(with_mode=False)
