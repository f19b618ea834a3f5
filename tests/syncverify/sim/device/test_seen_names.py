"""A subject that sees CUDA devices: the results of its lines, and all that stays as it is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from syncverify import verify
from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.playing.choice import open_backend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.subject import Subject, resolve
from tests.programs import one_parameter

SEES_CUDA = Capabilities(tensors="local", device="cuda")
SEES_CPU = replace(SEES_CUDA, device="cpu")
SCENARIO = one_parameter(2, "p", (3,))


class Sums:
    """Sums gradients in wait()."""

    def __init__(self, groups: list[list[nn.Parameter]], _mb: float, _n: int) -> None:
        (self.parameter,) = (p for group in groups for p in group)

    def bind(self) -> None: ...

    def wait(self) -> None:
        dist.all_reduce(self.parameter.grad)

    def zero_grad(self) -> None:
        self.parameter.grad = None

    def unbind(self) -> None: ...


def violations(
    wait: Callable[[Tensor], Any], contract: Capabilities = SEES_CUDA
) -> list[Violation]:
    """Play a subject that runs a function on its gradient, and then sums it."""

    class Also(Sums):
        def wait(self) -> None:
            assert self.parameter.grad is not None
            wait(self.parameter.grad)
            super().wait()

    subject = Subject("also", Also, contract)
    run = SimBackend().run(SCENARIO, subject)
    assert all(
        gradient is None or gradient.device == torch.device("cpu")
        for rank in run.ranks
        for observation in rank.observations
        for gradient in observation.gradients.values()
    )
    return check(SCENARIO, run, contract)


def rank_device() -> torch.device:
    return torch.device("cuda", dist.get_rank())


def by_mesh(gradient: Tensor) -> bool:
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    tensor = DTensor.from_local(gradient, mesh)
    return mesh.device_type == "cuda" and tensor.device == rank_device()


def by_module(gradient: Tensor) -> bool:
    made = nn.Linear(2, 2, device=gradient.device), nn.Linear(2, 2).cuda()
    return all(p.is_cuda for module in made for p in module.parameters())


def by_context(_: Tensor) -> bool:
    with torch.device("cuda"):
        return torch.zeros(2).is_cuda and not torch.zeros(2, device="cpu").is_cuda


def by_host(gradient: Tensor) -> bool:
    copy = gradient.detach().to("cpu")
    made = torch.zeros(3), torch.ones(3, device="cpu"), gradient.cpu(), copy[1:]
    moved = copy.to(gradient.device), torch.as_tensor(copy, device="cuda")
    apart = all(tensor.data_ptr() != copy.data_ptr() for tensor in moved)
    there = all(tensor.is_cuda for tensor in moved)
    return apart and there and all(tensor.is_cpu for tensor in made)


def by_pinned_memory(gradient: Tensor) -> bool:
    made = torch.empty(3, pin_memory=True), gradient.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    back = made[1].to(gradient.device, non_blocking=True)
    hosts = (*made, torch.ones(3).pin_memory())
    return all(t.is_pinned() and t.is_cpu for t in hosts) and back.is_cuda


def by_stream(gradient: Tensor) -> bool:
    stream = torch.cuda.Stream()
    event = torch.cuda.current_stream().record_event()
    return stream.device == event.device == gradient.device


SPELLINGS: dict[str, Callable[[Tensor], bool]] = {
    "is_cuda": lambda g: g.is_cuda and not g.is_cpu,
    "device": lambda g: g.device == torch.device("cuda", torch.cuda.current_device()),
    "get_device": lambda g: g.get_device() == dist.get_rank(),
    "type": lambda g: g.type() == "torch.cuda.FloatTensor",
    "of type": lambda g: g.type("torch.cuda.DoubleTensor").dtype == torch.float64,
    "is_available": lambda _: torch.cuda.is_available(),
    "of a module": lambda _: (
        torch.cuda.memory.is_initialized()
        and torch.cuda.random.current_device() == dist.get_rank()
    ),
    "device_count": lambda _: torch.cuda.device_count() == dist.get_world_size(),
    "properties": lambda g: torch.cuda.get_device_properties(g.device).total_memory > 0,
    "memory": lambda _: torch.cuda.memory_allocated() < torch.cuda.mem_get_info()[0],
    "accelerator": lambda _: torch.accelerator.current_accelerator().type == "cuda",
    "backend": lambda _: dist.get_backend() == "nccl" and dist.is_nccl_available(),
    "group": lambda _: dist.get_backend(dist.new_group(backend="nccl")) == "nccl",
    "empty": lambda g: torch.empty(3, device="cuda").copy_(g).is_cuda,
    "like": lambda g: torch.zeros_like(g, device=g.device).is_cuda,
    "tensor": lambda g: torch.tensor([1.0], device=torch.device("cuda")).is_cuda,
    "to": lambda g: g.to("cuda").is_cuda and g.to(rank_device(), torch.float64).is_cuda,
    "cuda": lambda g: g.cuda().is_cuda and torch.zeros(3).cuda().is_cuda,
    "module": by_module,
    "mesh": by_mesh,
    "context": by_context,
    "host": by_host,
    "pinned memory": by_pinned_memory,
    "stream": by_stream,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_right_subject_runs_its_branch_for_gpus(spelling: str) -> None:
    seen: list[bool] = []
    assert violations(lambda g: seen.append(SPELLINGS[spelling](g))) == []
    assert seen == [True, True]


def test_a_defect_in_the_branch_for_gpus_is_found_where_the_subject_is_seen() -> None:
    def doubles(gradient: Tensor) -> None:
        if gradient.is_cuda:
            gradient.mul_(2)

    (found,) = violations(doubles)
    assert found.property == "gradient_equals_reference"
    assert violations(doubles, SEES_CPU) == []


def no_kernel(gradient: Tensor) -> None:
    torch.ops.aten._fused_dropout(gradient, 0.5)


def own_check(_: Tensor) -> None:
    raise RuntimeError("weight must be a CUDA tensor")


def triton(_: Tensor) -> None:
    raise ModuleNotFoundError("No module named 'triton'")


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        (no_kernel, "arguments from the 'CPU' backend"),
        (own_check, "RuntimeError: weight must be a CUDA tensor"),
        (triton, "No module named 'triton'"),
        (lambda _: torch.hann_window(3, device="cuda"), "CUDA devices"),
    ],
)
def test_a_need_of_a_real_gpu_is_no_violation(
    needs: Callable[[Tensor], Any], message: str
) -> None:
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        violations(needs)
    assert message in str(caught.value)
    assert "device/test_seen_names.py:" in str(caught.value)
    assert str(caught.value).startswith("the sim backend ")


def test_an_error_that_names_the_seen_device_is_the_subjects_own() -> None:
    def refuses(gradient: Tensor) -> None:
        raise ValueError(f"no gradient of this kind on {gradient.device}")

    (found,) = violations(refuses)
    assert found.property == "every_rank_finishes"
    (found,) = violations(own_check, SEES_CPU)
    assert found.property == "every_rank_finishes"


@pytest.mark.parametrize("name", ["gloo", "fake"])
def test_a_backend_of_cpus_refuses_a_subject_that_sees_cuda(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_backend(name, Subject("sums", Sums, SEES_CUDA))
    assert str(caught.value) == (
        f"subject 'sums' does not run on the {name} backend: it has a contract with "
        "device = 'cuda'; use --backend sim, nccl with GPUs, or a contract without it"
    )


def host_group(gradient: Tensor) -> None:
    group = dist.new_group(None, None, "gloo")
    assert (dist.get_backend(group), dist.get_backend()) == ("gloo", "nccl")
    dist.all_reduce(torch.zeros(3), group=group)
    dist.all_reduce(gradient.clone(), group=dist.new_group(backend="nccl"))


def device_group(_: Tensor) -> None:
    dist.all_reduce(torch.zeros(3))


def test_nccl_takes_no_memory_of_the_host() -> None:
    assert not violations(host_group)
    (found,) = violations(device_group)
    assert found.property == "every_rank_finishes"
    assert "No backend type associated with device type cpu" in found.summary
    assert not violations(device_group, SEES_CPU)


@pytest.mark.long
def test_our_synchronizer_holds_its_contract_where_it_is_seen() -> None:
    contract = replace(resolve("synchronizer").capabilities, device="cuda")
    verify("synchronizer", contract=contract, examples=8, seed=0)


@pytest.mark.parametrize(
    ("capabilities", "default"),
    [
        (SEES_CPU, "gloo"),
        (replace(SEES_CPU, needs_nccl=True), "nccl"),
        (SEES_CUDA, "nccl"),
    ],
)
def test_the_backend_is_seen_as_on_real_ranks(
    capabilities: Capabilities, default: str
) -> None:
    def asks(_: Tensor) -> None:
        mixed = dist.new_group(backend="cpu:gloo,cuda:nccl")
        groups = (None, dist.new_group(), dist.new_group(backend="gloo"), mixed)
        names = [dist.get_backend(group) for group in groups]
        assert names == [default, default, "gloo", "cpu:gloo,cuda:nccl"]

    assert not violations(asks, capabilities)
