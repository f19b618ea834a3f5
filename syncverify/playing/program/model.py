"""The model of one rank: a scenario's parameters as torch parameters, and their losses."""

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from syncverify.playing.program.graphs.custom_function import (
    INTO_ONE_STORAGE,
    OneStorage,
    undefined_gradient,
)
from syncverify.playing.program.graphs.errors import failing_term, idle_term
from syncverify.playing.program.graphs.losses import (
    AsRank,
    Losses,
    dot,
    one_thread,
    total,
)
from syncverify.playing.program.graphs.uses import USES, added_to
from syncverify.playing.program.modules.layers import (
    module_loss,
    require_own_parameters,
)
from syncverify.playing.program.modules.model import initial_value
from syncverify.playing.program.own_parameters import local_part
from syncverify.scenario import step_plan
from syncverify.scenario.contributions import contribution, magnitude, with_overflow
from syncverify.scenario.distribution import in_format, local_in_graph, wrap_local
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.layout import contributing_ranks, local_shape, mesh_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

# Makes the context manager of one parameter's part of the forward, by parameter name.
ForwardContext = Callable[[str], AbstractContextManager[object]]
# Name of a term that uses no parameter, or all parameters.
_NO_PARAMETER = ""
# Added to a small whole number, bfloat16 and float16 round it: a broadcast in one of them leaves
# its sender with another value.
_IN_NO_NARROW_DTYPE = 2**-12


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The parameters of one rank, by name, in registration order."""

    scenario: Scenario
    rank: int
    parameters: Mapping[str, nn.Parameter]

    def param_groups(self, step: int) -> list[list[nn.Parameter]]:
        """Return the parameters of a step as the subject's factory takes them, by group.

        A parameter that is listed twice comes a second time at the end of its group, or of
        the next one. Example: a model's head that shares its weight with the first layer.
        """
        listed = defaultdict[int, list[nn.Parameter]](list)
        born = self.born(step)
        most = max(spec.num_listed for spec in born)
        for again, spec in itertools.product(range(most), born):
            if again < spec.num_listed:
                listed[spec.group].append(self.parameters[spec.name])
        for spec in born:
            if spec.also_in_next_group:
                listed[spec.group + 1].append(self.parameters[spec.name])
        return [listed[index] for index in sorted(listed)]

    def born(self, step: int) -> list[ParameterSpec]:
        """List the parameters that are part of the training in a step."""
        listed = self.scenario.parameters
        return [s for s in listed if step_plan.is_born(self.scenario, s, step)]

    def copy(self) -> Self:
        """Return parameters with the same values and without hooks or gradients."""
        copies = {
            name: nn.Parameter(each.detach().clone(), requires_grad=each.requires_grad)
            for name, each in self.parameters.items()
        }
        return replace(self, parameters=copies)

    def loss(
        self,
        *,
        step: int,
        micro_batch: int,
        using: ForwardContext = nullcontext,
        fails: bool = False,
    ) -> torch.Tensor:
        """Return a scalar in float32 with exactly this micro-batch's contributions as gradients.

        The loss of a real module has the module's own gradients, which round. `using` makes the
        context manager of one parameter's part of the forward. `fails` makes the backward fail
        in the middle.
        """
        return total(self._terms(step, micro_batch, using, fails=fails).values())

    def evaluated(
        self, *, step: int, using: ForwardContext = nullcontext
    ) -> torch.Tensor:
        """Return the first loss of a step, computed without a graph.

        Each use is a plain product: some uses need a graph. Arguments are those of `loss`.
        """
        specs = (replace(spec, use=PLAIN) for spec in self.scenario.parameters)
        plain = replace(self.scenario, parameters=tuple(specs))
        model = replace(self, scenario=plain)
        return model.loss(step=step, micro_batch=0, using=using)

    def losses(
        self,
        *,
        step: int,
        micro_batch: int,
        using: ForwardContext = nullcontext,
        fails: bool = False,
        as_rank: AsRank = one_thread,
    ) -> Losses:
        """Return the terms of the loss that need gradients, for a word of `BACKWARDS`.

        Arguments are those of `loss`; `as_rank` makes another thread a thread of this rank.
        """
        found = self._terms(step, micro_batch, using, fails=fails)
        terms = {name: term for name, term in found.items() if term.requires_grad}
        own = {name: self.parameters[name] for name in terms if name in self.parameters}
        return Losses(terms, own, as_rank)

    def _terms(
        self, step: int, micro_batch: int, using: ForwardContext, *, fails: bool
    ) -> dict[str, torch.Tensor]:
        """Compute the terms of a loss, by name of their parameter or `_NO_PARAMETER`."""
        if self.scenario.module != PLAIN:
            # One view or local part for each parameter. All uses of a tied parameter then add
            # up in the parameter's dtype, before the engine casts the sum to `grad_dtype`.
            parts = {
                name: p.to_local() if isinstance(p, DTensor) else p.view_as(p)
                for name, p in self.parameters.items()
            }
            loss = module_loss(self.scenario, parts, self.rank, step, micro_batch)
            return {_NO_PARAMETER: loss}
        device = next(iter(self.parameters.values())).device
        listed = step_plan.used_parameters(self.scenario, self.rank, step, micro_batch)
        terms: dict[str, torch.Tensor] = {}
        storages = defaultdict[tuple[torch.dtype, str], OneStorage](OneStorage)
        for position, spec in enumerate(listed):
            if fails and position == len(listed) // 2:
                terms[_NO_PARAMETER] = failing_term(device)
            at = {"rank": self.rank, "step": step, "micro_batch": micro_batch}
            with using(spec.name):
                terms[spec.name] = self._term(spec, at, listed[:position], storages)
        for spec in self.born(step):
            if spec.used == "undefined" and self.parameters[spec.name].requires_grad:
                part = local_in_graph(self.parameters[spec.name], spec)
                # By another name: hooks of the user on the parameter would get no tensor.
                terms[f"{spec.name}, undefined"] = undefined_gradient(part)
        if fails and not listed:  # terms of undefined gradients alone would not fail
            terms[_NO_PARAMETER] = failing_term(device)
        if not any(term.requires_grad for term in terms.values()):
            terms[_NO_PARAMETER] = idle_term(device)
        return terms

    def _term(
        self,
        spec: ParameterSpec,
        at: Mapping[str, int],
        before: Sequence[ParameterSpec],
        storages: Mapping[tuple[torch.dtype, str], OneStorage],
    ) -> torch.Tensor:
        """Compute a term with exactly the parameter's contribution as gradient.

        Parameters `before` have earlier terms. A storage is of a dtype, and of one parameter, or of
        all under the name "".
        """
        local = local_in_graph(self.parameters[spec.name], spec)
        constant = contribution(self.scenario, spec, **at)
        constant = with_overflow(constant, self.scenario, spec, **at)
        scale = magnitude(self.scenario, spec)
        # Some uses ask for a graph, which a frozen parameter does not have.
        if spec.use == PLAIN or not local.requires_grad:
            scaled = constant * scale
            return dot(local, scaled.to(dtype=local.dtype, device=local.device))
        # Inf and NaN in the gradient of another parameter would not cancel out.
        is_added = spec.use == "added_to_another" and bool(constant.isfinite().all())
        # Some take the constant for whole numbers.
        constant = constant.to(dtype=local.dtype, device=local.device)
        other = self._other_of_shape(local, before) if is_added else None
        if other is not None:
            remake = functools.partial(local_in_graph, self.parameters[spec.name], spec)
            return added_to(other, remake, (constant * scale).to(local.dtype))
        if spec.use == INTO_ONE_STORAGE:
            # Memory of one tensor belongs to one stream.
            is_apart = self.scenario.launch == "parameter_streams"
            storage = storages[local.dtype, spec.name if is_apart else ""]
            return storage.dot(local, (constant * scale).to(local.dtype))
        term = USES[spec.use](local, constant)
        return term if scale == 1 else term * scale

    def _other_of_shape(
        self, local: torch.Tensor, before: Sequence[ParameterSpec]
    ) -> torch.Tensor | None:
        """Return the local part of a parameter with an earlier term, equal in shape and dtype.

        Backward goes through terms from the last one to the first: sums of the other
        parameter's gradient stay exact, since its own term comes after those that cancel out.
        """
        for other in before:
            part = local_in_graph(self.parameters[other.name], other)
            is_alike = part.shape == local.shape and part.dtype == local.dtype
            if is_alike and part.requires_grad:
                return part
        return None

    def local_gradients(self) -> dict[str, torch.Tensor]:
        """Return the local gradients that exist now, without copies, by parameter name."""
        return {
            name: local_part(each.grad)
            for name, each in self.parameters.items()
            if each.grad is not None
        }

    def partial_gradients(self) -> frozenset[str]:
        """Name the parameters with a gradient that is `Partial` over several ranks."""
        return frozenset(
            name
            for name, p in self.parameters.items()
            if isinstance(p.grad, DTensor)
            for each, size in zip(
                p.grad.placements, p.grad.device_mesh.shape, strict=True
            )
            if each.is_partial() and size > 1
        )


def build_model(
    scenario: Scenario,
    *,
    rank: int,
    device: torch.device,
    meshes: Mapping[MeshSpec, DeviceMesh] | None,
) -> LocalModel:
    """Return one rank's parameters; replicas have equal values, but for `replicas=unequal`.

    Without meshes, every parameter is an ordinary tensor of its local shape.
    """
    if scenario.module != PLAIN:
        require_own_parameters(scenario)
    parameters = dict[str, nn.Parameter]()
    for spec in scenario.parameters:
        dtype: torch.dtype = getattr(torch, spec.dtype)
        values = start_value(scenario, spec, rank).to(dtype=dtype, device=device)
        data = in_format(values, spec.memory_format)
        if meshes is not None and spec.placements is not None:
            mesh = mesh_of(scenario.mesh, spec)
            data = wrap_local(data, meshes[mesh], mesh, spec)
        built = nn.Parameter(data, requires_grad=spec.requires_grad)
        if spec.grad_dtype is not None:
            built.grad_dtype = getattr(torch, spec.grad_dtype)
        parameters[spec.name] = built
    return LocalModel(scenario, rank, parameters)


def start_value(scenario: Scenario, spec: ParameterSpec, rank: int) -> torch.Tensor:
    """Return one rank's part of a parameter as training starts, not yet in the parameter's dtype."""
    if scenario.module != PLAIN:
        return initial_value(scenario.mesh, spec, rank)
    shape = torch.Size(local_shape(scenario.mesh, spec, rank))
    # Replicas of one part are equal, unless the scenario says otherwise. Other parts differ, so
    # that a broadcast of what has to stay local is seen.
    is_equal = scenario.replicas == "equal"
    if is_equal:
        part = contributing_ranks(scenario.mesh, spec, rank)[0]
    else:  # ranks differ by other amounts for other parameters
        part = (rank + 1) * (1 + scenario.parameters.index(spec) % 4)
    values = ((torch.arange(shape.numel()) + part) % 5 - 2).reshape(shape)
    return values if is_equal else values + _IN_NO_NARROW_DTYPE
