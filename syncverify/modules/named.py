"""Find models by the names that scenarios have for them, and run them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import nn
from torch.func import functional_call

from syncverify.errors import ScenarioFormatError
from syncverify.modules.conv import CONV, CONV_CHANNELS_LAST
from syncverify.modules.gpt import GPT
from syncverify.modules.mlp import MLP
from syncverify.modules.model import Model
from syncverify.modules.moe import MOE
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario

MODELS: Final[Mapping[str, Model]] = {
    "mlp": MLP,
    "conv": CONV,
    "conv_channels_last": CONV_CHANNELS_LAST,
    "moe": MOE,
    "gpt": GPT,
}


@functools.lru_cache
def find_model(name: str) -> Model:
    """Find a model.

    Args:
        name: A word of `vocabulary.MODULES`, or `module:attribute` of a `Model`.

    Returns:
        The model.

    Raises:
        ScenarioFormatError: There is none of that name.
    """
    if name in MODELS:
        return MODELS[name]
    module_name, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ScenarioFormatError(
            f"the scenario trains {name!r}, which cannot be imported: {error}"
        ) from error
    if not isinstance(found, Model):
        raise ScenarioFormatError(
            f"the scenario trains {name!r}, which is no syncverify.modules.Model"
        )
    return found


@functools.lru_cache
def module_parameters(name: str, mesh: MeshSpec) -> tuple[ParameterSpec, ...]:
    """List the parameters of a model on a mesh, float32 and all in group 0."""
    return find_model(name).parameters(mesh)


def require_own_parameters(scenario: Scenario) -> None:
    """Refuse a scenario whose parameters are not those of its module.

    Their dtypes, groups and whether they are frozen are up to the scenario, as long as
    all have one dtype.

    Args:
        scenario: One that trains a module.

    Raises:
        ScenarioFormatError: Names, shapes or placements differ, or dtypes do among them.
    """
    expected = module_parameters(scenario.module, scenario.mesh)
    plainest = tuple(
        replace(spec, dtype="float32", grad_dtype=None, requires_grad=True, group=0)
        for spec in scenario.parameters
    )
    if plainest != expected or len({spec.dtype for spec in scenario.parameters}) > 1:
        raise ScenarioFormatError(
            f"malformed scenario: parameters of module {scenario.module!r} are "
            f"{', '.join(spec.name for spec in expected)}, placed as the module says and "
            f"of one dtype"
        )


def module_loss(
    scenario: Scenario,
    local_parts: Mapping[str, torch.Tensor],
    *,
    rank: int,
    step: int,
    micro_batch: int,
) -> torch.Tensor:
    """Compute a module's loss on a batch of this rank's micro-batch alone.

    Args:
        scenario: One that trains a module.
        local_parts: This rank's part of each parameter, by name.
        rank: Global rank.
        step: Optimizer step, from 0.
        micro_batch: Micro-batch of that step, from 0.

    Returns:
        A scalar, in float32.
    """
    generator = torch.Generator().manual_seed(_seed(rank, step, micro_batch))
    module = _skeleton(scenario.module, scenario.mesh, rank)
    loss: torch.Tensor = functional_call(module, dict(local_parts), (generator,))
    return loss


def _seed(rank: int, step: int, micro_batch: int) -> int:
    return (rank * 1009 + step) * 1009 + micro_batch


@functools.lru_cache(maxsize=1024)
def _skeleton(name: str, mesh: MeshSpec, rank: int) -> nn.Module:
    """Build a module without parameters of its own; ranks are threads, so one each."""
    with torch.device("meta"):
        module = find_model(name).build(mesh, rank)
    return module
