"""A model on a rank, ready to train: on a mesh, as a user wires it, or plainly on one rank."""

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import torch
import torch.distributed.device_mesh
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.faces.whole_step.training import Training
from syncverify.faces.whole_step.watching import options_of
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.shards import KeptParts, splits, whole
from syncverify.judge.whole_step.values import NamedTensors, Quantity, StateName

# Prefixes that wrappers put into the names of parameters.
_WRAPPERS: Final = ("_orig_mod.", "_checkpoint_wrapped_module.", "module.")


@dataclass(frozen=True, slots=True)
class Wired:
    """A model on a rank, ready to train."""

    training: Training
    layout: Layout | None  # None for the plain step of the reference
    mesh: DeviceMesh | None
    model: Any  # the model that `parallelize` made, or the plain one
    optimizers: list[torch.optim.Optimizer]  # none where the model is no module
    scaler: Any
    schedule: Any
    parameters: dict[str, nn.Parameter]
    # First name of each parameter of the plain model, by all of its names.
    names: Mapping[str, str]
    kept: KeptParts = field(default_factory=dict)  # parts of tensors of the mesh
    # Parameter of which a tensor of an optimizer is a copy, as steps find them.
    copies: dict[torch.Tensor, nn.Parameter] = field(default_factory=dict)

    def user_values(self) -> dict[str, Any]:
        """Return the values that a user's functions may take, by name."""
        return {
            "model": self.model,
            "optimizer": _one_or_all(self.optimizers),
            "scaler": self.scaler,
            "schedule": self.schedule,
            "mesh": self.mesh,
        }

    @property
    def scale(self) -> float | None:
        """The factor of the loss; None without a scaler, or where `enabled=False` turns it off."""
        is_enabled = getattr(self.scaler, "is_enabled", None)
        is_off = callable(is_enabled) and not is_enabled()
        return None if self.scaler is None or is_off else float(self.scaler.get_scale())

    @property
    def first_names(self) -> dict[torch.Tensor, str]:
        """The first name of each parameter: tied weights have several."""
        names = dict[torch.Tensor, str]()
        for name, parameter in self.parameters.items():
            names.setdefault(parameter, name)
        return names

    @property
    def options(self) -> dict[str, dict[str, object]]:
        """The options of the optimizers now, by parameter."""
        names = self.first_names
        return {
            names[parameter]: options
            for optimizer in self.optimizers
            for parameter, options in options_of(optimizer).items()
            if parameter in names
        }

    @property
    def rates(self) -> NamedTensors:
        """The learning rate of each parameter now."""
        names = self.first_names
        return {
            names[each]: torch.as_tensor(group["lr"]).detach().clone()
            for optimizer in self.optimizers
            for group in getattr(optimizer, "param_groups", ())
            for each in group["params"]
            if each in names and "lr" in group
        }

    @property
    def frozen(self) -> frozenset[str]:
        """The parameters that need no gradient."""
        named = self.parameters.items()
        return frozenset(name for name, each in named if not each.requires_grad)

    def wholes(
        self, tensors: Mapping[str, torch.Tensor | None], quantity: Quantity, step: int
    ) -> NamedTensors:
        """Return copies of tensors, whole ones of DTensors, which are filled after the run."""
        return {
            name: None
            if each is None
            else whole(each, (quantity, step, name), self.kept)
            for name, each in tensors.items()
        }

    def read_again(self) -> Self:
        """Return the model with the parameters that it has now: loading may exchange them."""
        parameters = _by_first_names(
            _named_parameters(self.model, self.names), self.names
        )
        return replace(self, parameters=parameters)


def wired_on(training: Training, layout: Layout | None) -> Wired:
    """Put the model on this rank of a mesh, or leave it plain without a layout."""
    mesh = None if layout is None else layout.mesh(training.device)
    model = training.model()
    names = _plain_names(model)
    wired = model if mesh is None else _parallelized(training, model, mesh)
    parameters = _named_parameters(wired, names)
    optimizers = training.own_optimizers(wired) if isinstance(wired, nn.Module) else []
    scaler = None if training.scaler is None else call(training.scaler, {"mesh": mesh})
    schedule = None
    if training.schedule is not None and optimizers:
        schedule = call(training.schedule, {"optimizer": _one_or_all(optimizers)})
    return Wired(
        training=training,
        layout=layout,
        mesh=mesh,
        model=wired,
        optimizers=optimizers,
        scaler=scaler,
        schedule=schedule,
        parameters=parameters if mesh is None else _by_first_names(parameters, names),
        names=names,
    )


def _parallelized(training: Training, model: nn.Module, mesh: DeviceMesh) -> Any:
    """Return a model that a user puts on a mesh; refuse an axis that it lacks, and no module."""
    values = {"model": model, "mesh": mesh, **training.sizes}
    try:
        wired = call(training.parallelize, values)
    except KeyError as error:
        if not (taken := _missing_axes(error)):
            raise
        raise UsageError(
            f"parallelize() takes the axis {taken} of the mesh, and the layout has "
            f"{', '.join(map(repr, mesh.mesh_dim_names or ()))} alone; name it in the layout "
            "(size 1 is allowed)"
        ) from None
    if wired is None:
        return model
    if not any(isinstance(each, nn.Module) for each in tree_leaves(wired)):
        raise UsageError(
            "expected parallelize() to return the model, a list or tuple with modules, or "
            f"None for a model that it changes in place, not {type(wired).__name__}"
        )
    return wired


def _missing_axes(error: KeyError) -> str:
    """Return the axes that a program takes from a mesh without them; "" for another error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = torch.distributed.device_mesh.__name__
    for frame in frames:
        names = frame.f_locals.get("mesh_dim_names")
        mesh = frame.f_locals.get("self")
        if frame.f_globals.get("__name__") == module and isinstance(mesh, DeviceMesh):
            listed = (names,) if isinstance(names, str) else tuple(names or ())
            known = mesh.mesh_dim_names or ()
            return " and ".join(repr(each) for each in listed if each not in known)
    return ""


def _one_or_all(optimizers: list[torch.optim.Optimizer]) -> Any:
    """Return the only optimizer, the list of several ones, or None."""
    return optimizers if len(optimizers) > 1 else next(iter(optimizers), None)


def _plain_names(model: nn.Module) -> dict[str, str]:
    """Return the first name of each parameter by all of its names: tied weights have several."""
    first, names = dict[nn.Parameter, str](), dict[str, str]()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[name] = first.setdefault(parameter, name)
    return names


def _by_first_names(
    parameters: Mapping[str, nn.Parameter], names: Mapping[str, str]
) -> dict[str, nn.Parameter]:
    """Return parameters of a rank, those of tied weights by their first name.

    A stage of a pipeline may have a tied weight under its second name alone. A rank that has
    two parameters where the plain model has one keeps both names.
    """
    found = dict(parameters)
    for name, parameter in parameters.items():
        first = names.get(name, name)
        if found.get(first, parameter) is parameter and first != name:
            found[first] = found.pop(name)
    return found


def _named_parameters(wired: Any, names: Iterable[str]) -> dict[str, nn.Parameter]:
    """Return the parameters of a model, or of modules in lists and tuples, by their plain names."""
    known = {*names}
    modules = [each for each in tree_leaves(wired) if isinstance(each, nn.Module)]
    return {
        _plain_name(name, known): parameter
        for each in modules
        for name, parameter in each.named_parameters(remove_duplicate=False)
    }


def _plain_name(name: str, known: set[str]) -> str:
    for word in ("", *_WRAPPERS):
        name = name.replace(word, "") if word else name
        if name in known:
            return name
    return name


def optimizer_state(
    optimizers: Iterable[Any], names: Mapping[torch.Tensor, str]
) -> dict[str, torch.Tensor]:
    """Return the tensors of the state of optimizers, each with its name."""
    return {
        StateName.of(names[parameter], key): torch.as_tensor(value)
        for optimizer in {id(each): each for each in optimizers}.values()
        for parameter, state in getattr(optimizer, "state", {}).items()
        for key, value in state.items()
        if isinstance(parameter, torch.Tensor)
        and parameter in names
        and isinstance(value, torch.Tensor | int | float)
    }


def axes_of(value: torch.Tensor) -> frozenset[str]:
    """Return the axes over which a tensor is split."""
    if not isinstance(value, DTensor):
        return frozenset()
    names = value.device_mesh.mesh_dim_names or ()
    placements = zip(names, value.placements, strict=False)
    return frozenset(name for name, placement in placements if splits(placement))


def clip_over_meshes(
    parameters: Iterable[nn.Parameter], max_norm: float
) -> torch.Tensor:
    """Return the norm over parameters of any meshes, after clipping their gradients in place by it.

    `torch.nn.utils.clip_grad_norm_` refuses DTensors of different meshes, as tensor
    parallelism of some layers makes them.
    """
    by_mesh = dict[object, list[nn.Parameter]]()
    for each in parameters:
        if each.grad is not None:
            mesh = each.grad.device_mesh if isinstance(each.grad, DTensor) else None
            by_mesh.setdefault(mesh, []).append(each)
    norms = [_norm(listed) for listed in by_mesh.values()]
    total = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
    for listed in by_mesh.values():
        nn.utils.clip_grads_with_norm_(listed, max_norm, total)
    return total


def _norm(parameters: list[nn.Parameter]) -> torch.Tensor:
    norm = nn.utils.get_total_norm(
        [each.grad for each in parameters if each.grad is not None]
    )
    if isinstance(norm, DTensor):
        whole: torch.Tensor = norm.full_tensor()
        return whole
    return norm
