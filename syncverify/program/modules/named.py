"""Models by the names that scenarios use, and their losses."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import nn
from torch.func import functional_call

from syncverify.errors import ScenarioFormatError
from syncverify.program.modules.conv import CONV, CONV_CHANNELS_LAST
from syncverify.program.modules.gpt import GPT
from syncverify.program.modules.mlp import MLP
from syncverify.program.modules.model import Model
from syncverify.program.modules.moe import MOE
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

# Data of others names models by these words alone, and never by a module to import.
MODELS: Final[dict[str, Model]] = {
    "mlp": MLP,
    "conv": CONV,
    "conv_channels_last": CONV_CHANNELS_LAST,
    "moe": MOE,
    "gpt": GPT,
}


@functools.lru_cache
def module_parameters(name: str, mesh: MeshSpec) -> tuple[ParameterSpec, ...]:
    """List the parameters of a model on a mesh, all in float32 and in group 0."""
    return MODELS[name].parameters(mesh)


def forget(name: str) -> None:
    """Forget a model, of which another module may take the name."""
    MODELS.pop(name, None)
    module_parameters.cache_clear()
    _skeleton.cache_clear()


def require_own_parameters(scenario: Scenario) -> None:
    """Refuse a scenario with other parameters than its module.

    A scenario may choose one dtype for all parameters, their groups, and the frozen ones.

    Raises:
        ScenarioFormatError: Names, shapes or placements differ from the module's, or
            parameters have several dtypes.
    """
    expected = module_parameters(scenario.module, scenario.mesh)
    own = tuple(
        replace(spec, dtype="float32", grad_dtype=None, requires_grad=True, group=0)
        for spec in scenario.parameters
    )
    if own != expected or len({spec.dtype for spec in scenario.parameters}) > 1:
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
    """Return a module's loss on the batch of one micro-batch, a scalar in float32.

    The batch depends on rank, step and micro-batch, so each has another gradient.
    """
    generator = torch.Generator().manual_seed(_seed(rank, step, micro_batch))
    module = _skeleton(scenario.module, scenario.mesh, rank)
    loss: torch.Tensor = functional_call(module, dict(local_parts), (generator,))
    return loss


def _seed(rank: int, step: int, micro_batch: int) -> int:
    return (rank * 1009 + step) * 1009 + micro_batch


@functools.lru_cache(maxsize=1024)
def _skeleton(name: str, mesh: MeshSpec, rank: int) -> nn.Module:
    """Build a module without data; one per rank, since ranks may be threads."""
    with torch.device("meta"):
        module = MODELS[name].build(mesh, rank)
    return module
