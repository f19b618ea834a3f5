"""torch's FSDP2 (`fully_shard`) as a subject, with options: setters of `FSDPModule` and arguments."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import EVENTS, OPTIONAL
from syncverify.subjects.adapters import (
    LOCAL_MEAN,
    ONE_BACKWARD_A_STEP,
    ParameterHolder,
)
from syncverify.subjects.subject_options import SubjectOption, one_of

SUBJECTS = {"fsdp2": "FullyShardedSubject", "hsdp": "HybridShardedSubject"}

_WHY_NOT_OBSERVED: Final = (
    "the adapter holds copies of the parameters, so a word would be about the adapter"
)
# A mode of torch functions puts the copies in place, and the adapter runs backward itself.
# Three kinds of features therefore reach one side alone: a special backward reaches the adapter,
# a custom function or `autograd.grad` reaches the original, a changed parameter reaches no copy.
_NOT_OBSERVED: Final = (
    *(str(feature) for feature in OPTIONAL if feature.topic == "backward"),
    *(f"use={word}" for word in (
        "pruned_branch", "saves_for_backward", "marks_dirty", "non_differentiable",
        "unmaterialized", "needs_input_grad", "differentiable_once", "none_gradient",
        "fused_accumulation", "fused_main_grad", "checkpointed_reentrant",
        "checkpointed_and_not", "checkpointed_nested", "double_backward",
        "jacobian_rows", "hessian",
    )),
    "event=raise_in_backward",
    *(f"event={word}" for word, event in EVENTS.items() if event.change),
)  # fmt: skip


def _power_of_two(text: str) -> float:
    value = float(text)
    # Exact in every dtype, even for the smallest and for the largest gradient in float16.
    if not 1 / 16 <= value <= 16 or math.frexp(value)[0] != 0.5:
        raise ValueError(text)
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


_SWITCH: Final = one_of({"true": True, "false": False})
_COUNT: Final = SubjectOption("a positive integer", _positive)
# The adapter calls the method `set_` of a name; releases of torch add some.
_SETTERS: Final[Mapping[str, SubjectOption]] = {
    "gradient_divide_factor": SubjectOption(
        "a power of two from 0.0625 to 16, such as 2", _power_of_two
    ),
    "force_sum_reduction_for_comms": _SWITCH,
    "reshard_after_forward": _SWITCH,
    "reduce_scatter_max_input_buffers": _COUNT,
    "separate_reduce_scatter_group": _SWITCH,
}
OPTIONS: Final = {
    **{n: each for n, each in _SETTERS.items() if hasattr(FSDPModule, f"set_{n}")},
    # With bfloat16, scenarios have gradients whose sums over ranks it holds.
    "reduce_dtype": one_of({n: n for n in ("float32", "float64", "bfloat16")}),
    # Each micro-batch reduces; or each reduce-scatters, and the last one all-reduces.
    "gradient_sync": one_of({"each": "each"}),
    "all_reduce": one_of({"last": "last"}),
    # The last backward alone frees the gathered parameters; the optimizer needs shards.
    "reshard": one_of({"last": "last"}),
    "shard_size": _COUNT,
}
_OF_SHARDS: Final = {"reshard_after_forward", "shard_size"}
OPTIONS_WITHOUT_SHARDS: Final = {
    name: each for name, each in OPTIONS.items() if name not in _OF_SHARDS
}


class _Substitution(TorchFunctionMode):
    """Calls operators with the substitute of each parameter, for the length of a block."""

    def __init__(self, substitutes: dict[nn.Parameter, torch.Tensor]) -> None:
        super().__init__()
        self._substitutes = substitutes

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        found = self._substitutes
        chosen = (found.get(a, a) if isinstance(a, nn.Parameter) else a for a in args)
        return func(*chosen, **(kwargs or {}))


class _ShardedGroup(nn.Module):
    """A module that FSDP2 wraps: copies of some parameters, around the groups inside.

    Groups are nested, so that the loss runs while the parameters of all are unsharded.
    """

    def __init__(self, parameters: list[nn.Parameter], inner: Self | None) -> None:
        super().__init__()
        self._originals = parameters
        self.parameter_list = nn.ParameterList(
            nn.Parameter(original.detach().clone(), original.requires_grad)
            for original in parameters
        )
        self.inner = inner

    @override
    def forward(self, compute_loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        with _Substitution(dict(self.pairs())):
            return compute_loss() if self.inner is None else self.inner(compute_loss)

    def pairs(self) -> Iterable[tuple[nn.Parameter, nn.Parameter]]:
        """Pair each parameter with its copy, which is sharded outside of forward and backward."""
        return zip(self._originals, self.parameter_list, strict=True)


class FullyShardedSubject(ParameterHolder):
    """Gives `fully_shard` the subject API.

    FSDP2 averages over all ranks of its mesh, and leaves a shard of the mean on each rank.
    It replaces parameters by shards, so the adapter lets it manage copies, and losses are
    computed on the copies. `wait()` gathers the shards of the gradients by DTensor's own
    `full_tensor()`, so that every rank has the whole mean.

    FSDP2 needs parameters with dims, and one dtype for all parameters of a wrapped module.
    The adapter therefore wraps each dtype of each parameter group. The first parameter group
    is sharded over all ranks. The others are replicated over two halves of the ranks, and
    sharded in each half (HSDP), if halves are equal and have several ranks.
    The bucket size is unused: FSDP2 reduces all parameters of a wrapped module at once.
    `set_requires_gradient_sync` marks the last micro-batch.

    Options are written behind the name, as in `fsdp2:gradient_divide_factor=2`. With that one,
    FSDP2 divides the sum by 2, and `wait()` makes the mean of it.
    """

    capabilities = replace(LOCAL_MEAN, scalars=False)
    takes_options: ClassVar[Mapping[str, SubjectOption]] = OPTIONS
    options: ClassVar[Mapping[str, Any]] = {}
    options_in_ranks: ClassVar[tuple[str, ...]] = ("shard_size",)
    first_in_halves: ClassVar[int] = 1  # number of the first parameter group in halves
    not_observed: ClassVar[Mapping[str, str]] = dict.fromkeys(
        _NOT_OBSERVED, _WHY_NOT_OBSERVED
    )
    _step: Callable[[torch.Tensor], None] | None = None

    @classmethod
    def narrowed(cls, contract: Capabilities) -> Capabilities:
        """Return the contract without promises that the options take back."""
        reduces_each, outside = cls._reduces_each(), contract.outside
        if cls.options.get("reduce_dtype") == "float32":
            outside |= {"dtype=float64"}
        if cls.options.get("reduce_dtype") == "bfloat16":
            contract = replace(contract, wire_dtype="bfloat16")
            # Gradients accumulate in that dtype, as documented.
            outside |= frozenset() if reduces_each else ONE_BACKWARD_A_STEP.outside
        reduces_each = reduces_each or contract.reduces_each_micro_batch
        return replace(contract, outside=outside, reduces_each_micro_batch=reduces_each)

    @classmethod
    def _reduces_each(cls) -> bool:
        """Tell whether every micro-batch reduces, over all ranks or over the shards alone."""
        return "gradient_sync" in cls.options or "all_reduce" in cls.options

    def step_in_backward(self, step: Callable[[torch.Tensor], None]) -> None:
        """Have FSDP2 call a function, as it calls the user's hooks, from the next `bind()` on."""
        self._step = step

    def bind(self) -> None:
        """Shard copies of the parameters, the last group innermost."""
        self._groups: list[_ShardedGroup] = []
        device = self.param_groups[0][0].device
        for number, group in reversed(list(enumerate(self.param_groups))):
            for dtype in dict.fromkeys(parameter.dtype for parameter in group):
                alike = [parameter for parameter in group if parameter.dtype == dtype]
                inner = self._groups[0] if self._groups else None
                sharded = _ShardedGroup(alike, inner)
                self._wrap(sharded, device, number)
                self._set(sharded)
                self._groups.insert(0, sharded)
        if self._step is None:
            return
        for original, shard in self._pairs():
            if shard.requires_grad:
                hook = functools.partial(self._stepped, original)
                shard.register_post_accumulate_grad_hook(hook)

    def _stepped(self, original: nn.Parameter, shard: torch.Tensor) -> None:
        """Hand a gradient of which FSDP2 has reduced a shard to the user's function."""
        assert self._step is not None
        assert isinstance(shard.grad, DTensor)
        original.grad = self._mean(shard.grad.full_tensor())
        self._step(original)
        if not _has_gradient(original):
            shard.grad = None

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run forward and backward, reducing in the last micro-batch, or as options say."""
        root: Any = self._groups[0]
        root.set_requires_gradient_sync(is_last or self._reduces_each())
        if "all_reduce" in self.options:
            root.set_requires_all_reduce(is_last)
        if "reshard" in self.options:
            root.set_reshard_after_backward(is_last)
        loss: torch.Tensor = root(compute_loss)
        loss.backward()

    def evaluate(self, compute_loss: Callable[[], torch.Tensor]) -> None:
        """Run a forward in eval mode; no backward follows."""
        root = self._groups[0]
        root.eval()
        root(compute_loss)
        root.train()

    def wait(self) -> None:
        """Gather the reduced shards; FSDP2's backward returns with them complete."""
        for original, shard in self._pairs():
            if isinstance(shard.grad, DTensor):
                original.grad = self._mean(shard.grad.full_tensor())

    def zero_grad(self) -> None:
        """Drop the gradients, as optimizers do."""
        for original, shard in self._pairs():
            original.grad = shard.grad = None

    def unbind(self) -> None:
        """Drop the shards."""
        self.zero_grad()
        self._groups = []

    def _set(self, wrapped: _ShardedGroup) -> None:
        """Call the methods of `FSDPModule` that options name, such as `set_reshard_after_forward`."""
        for name, value in self.options.items():
            if hasattr(wrapped, f"set_{name}"):
                getattr(wrapped, f"set_{name}")(value)

    def _wrap(self, module: nn.Module, device: torch.device, number: int) -> None:
        """Wrap a module of the parameter group with a number, from 0."""
        half = dist.get_world_size() // 2 if number >= self.first_in_halves else 0
        size = self.options.get("shard_size", half if half > 1 else 0)
        mesh = _mesh_of_shards(device.type, size)
        fully_shard(module, mesh=mesh, mp_policy=self._mp_policy())

    def _mp_policy(self) -> MixedPrecisionPolicy:
        name = self.options.get("reduce_dtype")
        return MixedPrecisionPolicy(reduce_dtype=name and getattr(torch, name))

    def _mean(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the mean over all ranks of a gradient that FSDP2 reduced."""
        factor = self.options.get("gradient_divide_factor")
        return gradient if factor is None else gradient * factor / dist.get_world_size()

    def _pairs(self) -> Iterable[tuple[nn.Parameter, nn.Parameter]]:
        return (pair for group in self._groups for pair in group.pairs())


def _has_gradient(parameter: nn.Parameter) -> bool:
    return parameter.grad is not None


class HybridShardedSubject(FullyShardedSubject):
    """FSDP2 over a mesh of two axes (HSDP): replicated over one, sharded over the other.

    "2D mesh: Parameters are sharded across the 1st dim and replicated across the 0th dim",
    says the docstring of `fully_shard`. Worlds of two ranks, or of an odd number, are sharded
    over all ranks.
    """

    first_in_halves: ClassVar[int] = 0


def _mesh_of_shards(device_type: str, size: int) -> DeviceMesh:
    """Replicate over groups of a size, and shard in each; over all ranks if it does not divide."""
    world_size = dist.get_world_size()
    if not size or world_size % size:
        return init_device_mesh(device_type, (world_size,))
    return init_device_mesh(
        device_type, (world_size // size, size), mesh_dim_names=("replicate", "shard")
    )
