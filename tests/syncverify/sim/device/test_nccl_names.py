"""The names of NCCL in torch: groups of each name, and their promises."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.torch_version import TorchVersion

from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.settings import NCCL_NAMES
from syncverify.sim.device import nccl_names
from syncverify.sim.device.nccl_names import Promises, promises_of
from syncverify.subjects.subject import Subject
from tests.programs import one_parameter

OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]
LEGACY = Promises(orders_by_future=False, keeps_results=True, orders_messages=False)
NCCL2 = Promises(orders_by_future=True, keeps_results=False, orders_messages=True)
EITHER = Promises(orders_by_future=False, keeps_results=False, orders_messages=False)
CHOICE = "TORCH_DIST_USE_NCCL2"
SEES_CUDA = Capabilities(tensors="local", device="cuda")
SCENARIO = one_parameter(2, "p", (3,))


@pytest.fixture
def torch_names(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that gives torch names; it has those of 2.15 before a call."""

    def give(*names: str) -> None:
        monkeypatch.setattr(nccl_names, "_named_in_torch", lambda: frozenset(names))

    monkeypatch.delenv(CHOICE, raising=False)
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.15.0"))
    give(*NCCL_NAMES)
    return give


@pytest.mark.parametrize(
    ("backend", "choice", "promised"),
    [
        ("nccl2", None, NCCL2),
        ("nccl-legacy", "1", LEGACY),
        ("nccl", None, EITHER),
        ("nccl", "0", LEGACY),
        ("nccl", "1", NCCL2),
        ("cpu:gloo,cuda:nccl", "1", NCCL2),
        ("gloo", "1", LEGACY),
    ],
)
def test_a_name_promises_what_all_promise_that_it_may_stand_for(
    torch_names: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    choice: str | None,
    promised: Promises,
) -> None:
    if choice is not None:
        monkeypatch.setenv(CHOICE, choice)
    assert promises_of(backend) == promised
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.14.1"))
    assert promises_of(backend) == promised._replace(keeps_results=True)


def test_a_torch_with_one_implementation_has_no_choice(
    torch_names: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_names()
    monkeypatch.setenv(CHOICE, "1")
    assert promises_of("nccl") == LEGACY


def test_a_name_that_torch_does_not_know_is_refused_as_torch_does(
    on_ranks: OnRanks, torch_names: Callable[..., None]
) -> None:
    torch_names()

    def program(_: int) -> Any:
        return dist.new_group([0, 1], backend="nccl9")

    with pytest.raises(Exception, match=r"(?i)nccl9"):
        on_ranks(2, program)


class Sums:
    """Sums gradients on a side stream, and joins it without a wait for the collective."""

    backend: str

    def __init__(self, groups: list[list[nn.Parameter]], _mb: float, _n: int) -> None:
        (self.parameter,) = (p for group in groups for p in group)

    def bind(self) -> None:
        self.group = dist.new_group(backend=self.backend)
        self.side = torch.cuda.Stream()

    def wait(self) -> None:
        gradient = self.parameter.grad
        assert dist.get_backend(self.group) == self.backend
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            work = dist.all_reduce(gradient, group=self.group, async_op=True)
            self.use(work.get_future(), gradient)
        torch.cuda.current_stream().wait_stream(self.side)

    def use(
        self, future: torch.futures.Future[Any], gradient: torch.Tensor
    ) -> None: ...

    def zero_grad(self) -> None:
        self.parameter.grad = None

    def unbind(self) -> None:
        dist.destroy_process_group(self.group)


class ScalesInCallback(Sums):
    """Scales on the stream of a callback, after the work of the side stream."""

    def use(self, future: torch.futures.Future[Any], gradient: torch.Tensor) -> None:
        done = future.then(lambda _: gradient.mul_(2).div_(2))
        done.wait()


def causes(kind: type[Sums], backend: str) -> set[str]:
    subject = Subject("sums", type("Named", (kind,), {"backend": backend}), SEES_CUDA)
    run = SimBackend().run(SCENARIO, subject)
    return {found.cause for found in check(SCENARIO, run, SEES_CUDA)}


@pytest.mark.parametrize(
    ("backend", "is_right"),
    [("nccl2", True), ("nccl-lazy", True), ("nccl", False), ("nccl-legacy", False)],
)
def test_only_nccl2_and_nccl_lazy_take_a_future_for_a_wait(
    torch_names: Callable[..., None], backend: str, is_right
) -> None:
    assert (not causes(Sums, backend)) is is_right
    assert not causes(ScalesInCallback, backend)


def test_memory_of_the_host_is_refused(torch_names: Callable[..., None]) -> None:
    class OnHost(Sums):
        def wait(self) -> None:
            dist.all_reduce(torch.zeros(3), group=self.group)

    for backend in ("nccl-legacy", "nccl2"):
        assert causes(OnHost, backend) == {"raised_RuntimeError"}


class Drops(Sums):
    """Sums gradients, after a gather into memory without further use."""

    def wait(self) -> None:
        gradient = self.parameter.grad
        self.keep(self.gather(gradient.clone()))
        dist.all_reduce(gradient, group=self.group)

    def gather(self, gradient: torch.Tensor) -> dist.Work:
        everything = gradient.new_empty(2 * gradient.numel())
        return dist.all_gather_single(
            everything, gradient, group=self.group, async_op=True
        )

    def keep(self, work: dist.Work) -> None: ...


class DropsAfterWait(Drops):
    def keep(self, work: dist.Work) -> None:
        work.wait()


class KeepsHandle(Drops):
    def keep(self, work: dist.Work) -> None:
        self.work = work

    def zero_grad(self) -> None:
        self.work.wait()
        super().zero_grad()


class KeepsFuture(KeepsHandle):
    def keep(self, work: dist.Work) -> None:
        self.work = work.get_future()


@pytest.mark.parametrize("kind", [Drops, DropsAfterWait, KeepsHandle, KeepsFuture])
@pytest.mark.parametrize("backend", NCCL_NAMES)
def test_results_of_a_dropped_handle_are_held_by_the_legacy_implementation_alone(
    torch_names: Callable[..., None], kind: type[Sums], backend: str
) -> None:
    is_wrong = kind is Drops and backend != "nccl-legacy"
    assert causes(kind, backend) == ({"freed_in_use"} if is_wrong else set())


def test_results_that_others_hold_arrive_without_the_handle(
    on_ranks: OnRanks, torch_names: Callable[..., None]
) -> None:
    def program(rank: int) -> list[float]:
        group = dist.new_group([0, 1], backend="nccl2")
        everything, mine = torch.zeros(6), torch.full((2,), rank + 1.0)
        dist.all_gather_single(everything[2:], mine, group=group, async_op=True)
        before = everything.sum().item()
        torch.cuda.synchronize()
        return [before, *everything.tolist()]

    assert on_ranks(2, program) == [[0, 0, 0, 1, 1, 2, 2]] * 2


class SendsSum(Sums):
    """Sends a sum to the next rank without a wait for the sum."""

    def wait(self) -> None:
        gradient = self.parameter.grad
        rank, received = dist.get_rank(), torch.empty_like(gradient)
        sum_of_all = dist.all_reduce(gradient, group=self.group, async_op=True)
        works = [sum_of_all, self.exchange(gradient, received, rank)]
        for work in works:
            work.wait()

    def exchange(
        self, sent: torch.Tensor, received: torch.Tensor, rank: int
    ) -> dist.Work | None:
        if rank == 0:
            return dist.isend(sent, 1, group=self.group)
        return dist.irecv(received, 0, group=self.group)


class SendsSumInBatch(SendsSum):
    def exchange(
        self, sent: torch.Tensor, received: torch.Tensor, rank: int
    ) -> dist.Work | None:
        kind, tensor = (dist.isend, sent) if rank == 0 else (dist.irecv, received)
        message = dist.P2POp(kind, tensor, 1 - rank, group=self.group)
        (work,) = dist.batch_isend_irecv([message])
        return work


@pytest.mark.parametrize("kind", [SendsSum, SendsSumInBatch])
@pytest.mark.parametrize("backend", NCCL_NAMES)
def test_only_nccl2_orders_a_message_after_the_groups_collectives(
    torch_names: Callable[..., None], kind: type[Sums], backend: str
) -> None:
    is_right = backend == "nccl2" or kind is SendsSumInBatch
    assert (not causes(kind, backend)) is is_right
