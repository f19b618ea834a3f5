"""torch's FSDP2 (`fully_shard`) as a subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from syncverify.features import ALL_BEYOND
from syncverify.subject import Capabilities


class _InPlaceOf(TorchFunctionMode):
    """Lets operators see other parameters than those that they are called with."""

    def __init__(self, others: dict[nn.Parameter, torch.Tensor]) -> None:
        super().__init__()
        self._others = others

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        seen = (
            self._others.get(argument, argument)
            if isinstance(argument, nn.Parameter)
            else argument
            for argument in args
        )
        return func(*seen, **(kwargs or {}))


class _Shell(nn.Module):
    """Owns some parameters, and runs what is inside of it while they are unsharded."""

    def __init__(self, parameters: list[nn.Parameter], inner: _Shell | None) -> None:
        super().__init__()
        self._originals = parameters
        self.parameter_list = nn.ParameterList(
            nn.Parameter(original.detach().clone(), original.requires_grad)
            for original in parameters
        )
        self.inner = inner

    @override
    def forward(self, compute_loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        with _InPlaceOf(dict(self.pairs())):
            return compute_loss() if self.inner is None else self.inner(compute_loss)

    def pairs(self) -> Iterable[tuple[nn.Parameter, nn.Parameter]]:
        """Pair each parameter with what stands for it now: sharded, or whole."""
        return zip(self._originals, self.parameter_list, strict=True)


class FullyShardedSubject:
    """Gives `fully_shard` the subject API.

    FSDP2 averages over all ranks of its mesh, and leaves each of them a shard of the
    mean. It replaces parameters by shards, so here it manages copies, on which losses are
    computed in their place; `wait()` gathers the gradients of those with DTensor's own
    `full_tensor()`, so that every rank has every shard to show.

    It wants parameters with dims, and one dtype for all that it gathers together: each
    parameter group is sharded by itself, and each dtype of it. The first group is sharded
    over all ranks; where these have two halves of several, the others are replicated in
    each half and sharded in it (HSDP).

    Args:
        param_groups: Parameters by group.
        bucket_size_mb: Unused: FSDP2 reduces all that it gathers together at once.
        require_accumulations: Unused: `set_requires_gradient_sync` says which is last.
    """

    capabilities = Capabilities(
        outside=ALL_BEYOND,
        reduction="mean",
        tensors="local",
        separate_grad_dtype=False,
        varying_accumulations=True,
        needs_data=True,
        scalars=False,
    )

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        self._param_groups = param_groups
        self._shells: list[_Shell] = []

    def bind(self) -> None:
        """Shard copies of the parameters, the last group innermost."""
        device = self._param_groups[0][0].device
        for number, group in reversed(list(enumerate(self._param_groups))):
            for dtype in dict.fromkeys(parameter.dtype for parameter in group):
                alike = [parameter for parameter in group if parameter.dtype == dtype]
                inner = self._shells[0] if self._shells else None
                shell = _Shell(alike, inner)
                self._wrap(shell, device, number)
                self._shells.insert(0, shell)

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run forward and backward, reducing in the last micro-batch only."""
        root = self._shells[0]
        root.set_requires_gradient_sync(is_last)  # type: ignore[operator]  # of fully_shard
        loss: torch.Tensor = root(compute_loss)
        loss.backward()

    def wait(self) -> None:
        """Gather what FSDP2 reduced: its backward returns with that complete."""
        for original, shard in self._pairs():
            if isinstance(shard.grad, DTensor):
                original.grad = shard.grad.full_tensor()

    def zero_grad(self) -> None:
        """Drop the gradients, as optimizers do."""
        for original, shard in self._pairs():
            original.grad = shard.grad = None

    def unbind(self) -> None:
        """Drop the shards."""
        self.zero_grad()
        self._shells = []

    def _wrap(self, shell: nn.Module, device: torch.device, number: int) -> None:
        """Give the parameters of one group, which has a number, to FSDP2."""
        fully_shard(shell, mesh=_mesh(device, in_halves=number > 0))

    def _pairs(self) -> Iterable[tuple[nn.Parameter, nn.Parameter]]:
        return (pair for shell in self._shells for pair in shell.pairs())


class HybridShardedSubject(FullyShardedSubject):
    """FSDP2 over a mesh of two axes (HSDP): replicated over one, sharded over the other.

    "2D mesh: Parameters are sharded across the 1st dim and replicated across the 0th dim",
    says the docstring of `fully_shard`. Worlds of odd size are sharded over all ranks.
    """

    @override
    def _wrap(self, shell: nn.Module, device: torch.device, number: int) -> None:
        fully_shard(shell, mesh=_mesh(device, in_halves=True))


def _mesh(device: torch.device, *, in_halves: bool) -> DeviceMesh:
    half, rest = divmod(dist.get_world_size(), 2)
    if in_halves and half > 1 and not rest:
        return init_device_mesh(
            device.type, (2, half), mesh_dim_names=("replicate", "shard")
        )
    return init_device_mesh(device.type, (2 * half + rest,))
