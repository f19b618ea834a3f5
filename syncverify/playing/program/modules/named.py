"""Models by the names that scenarios use, and their losses."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import torch
from torch import nn
from torch.func import functional_call

from syncverify.errors import LayerError, ScenarioFormatError, SyncverifyError
from syncverify.plain_text import kind_of, message_of
from syncverify.playing.program.modules.model import MODELS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

# Paths of the layers of a user's own, by word.
PATHS: Final[dict[str, str]] = {}


@functools.lru_cache(maxsize=1024)
def module_parameters(name: str, mesh: MeshSpec) -> tuple[ParameterSpec, ...]:
    """List the parameters of a model on a mesh, all in float32 and in group 0."""
    return MODELS[name].parameters(mesh)


def forget(name: str) -> None:
    """Forget a model; another module may take its name."""
    MODELS.pop(name, None)
    PATHS.pop(name, None)
    module_parameters.cache_clear()
    _skeleton.cache_clear()


def require_own_parameters(scenario: Scenario) -> None:
    """Refuse a scenario whose parameters are not those of its module.

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
    with naming_layer(scenario.module):
        loss: torch.Tensor = functional_call(module, dict(local_parts), (generator,))
    return loss


@contextmanager
def naming_layer(word: str) -> Iterator[None]:
    """Turn an exception of a layer of a user's own into an error that names the layer.

    Exceptions of other modules stay as they are: those are faults of the harness.

    Raises:
        LayerError: The block raised an exception, in a layer of a user's own.
        SystemExit: A module of the table exits.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if word not in PATHS or isinstance(error, SyncverifyError):
            raise
        reason = f"{kind_of(error)}: {message_of(error)}"
        raise LayerError(refusal(word, reason)) from error


def refusal(word: str, reason: str) -> str:
    """Return the text of an error that refuses a layer of a user's own."""
    return f"layer {PATHS[word]!r} cannot be trained: {reason}"


def require_finite(word: str, tensor: torch.Tensor, noun: str) -> None:
    """Refuse a layer of a user's own whose loss or gradient is infinite or no number.

    Raises:
        LayerError: An element of the tensor is not finite.
    """
    if word in PATHS and not tensor.isfinite().all():
        raise LayerError(refusal(word, f"{noun} is not finite"))


def _seed(rank: int, step: int, micro_batch: int) -> int:
    return (rank * 1009 + step) * 1009 + micro_batch


@functools.lru_cache(maxsize=1024)
def _skeleton(name: str, mesh: MeshSpec, rank: int) -> nn.Module:
    """Build a module without data; one per rank, since ranks may be threads."""
    with torch.device("meta"):
        module = MODELS[name].build(mesh, rank)
    return module
