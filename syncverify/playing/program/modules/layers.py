"""Layers of a user's own, which a contract names and scenarios train.

A contract is trusted, and so its `layers` are imported. A scenario, and so a token or an entry
of a database, has a layer's word alone: nothing is ever imported for it.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

from syncverify.errors import LayerError
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.program.modules import named
from syncverify.playing.program.modules.model import MODELS, Model, initial_value
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OWN_LAYERS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.subjects.subject_path import imported

_ALONE: Final = MeshSpec((1,), ("dp",))
# Gradients of each layer that this process knows, by word and parameter.
_GRADIENTS: Final[dict[str, dict[str, torch.Tensor]]] = {}


def provide_layers(capabilities: Capabilities) -> None:
    """Let scenarios of this process train the layers of a contract.

    Raises:
        UsageError: A layer cannot be imported, or scenarios cannot train it.
    """
    for word, path in capabilities.layer_paths.items():
        if named.PATHS.get(word) == path:
            continue
        found = imported(path, "layer")
        _forget(word)
        MODELS[word] = found if isinstance(found, Model) else _model_of(found)
        named.PATHS[word] = path
        OWN_LAYERS[word] = f"of your own, {path}"
        try:
            _GRADIENTS[word] = _checked_gradients(word)
        except BaseException:  # Ctrl-C as well: the next call checks again
            _forget(word)
            raise


def forget_layers() -> None:
    """Forget all layers, as in a process that has read no contract with layers."""
    for word in list(named.PATHS):
        _forget(word)


def require_same_gradients(word: str) -> None:
    """Train a layer once more as at the start; a module of the table passes.

    Raises:
        LayerError: The layer raises now, or its gradients are others than at the start.
    """
    if word not in _GRADIENTS:
        return
    for name, gradient in _gradients(word).items():
        if not torch.equal(gradient, _GRADIENTS[word][name]):
            complaint = (
                f"{name!r} has a gradient different from the one at the start, on the same batch; "
                "keep no state between calls"
            )
            raise LayerError(named.refusal(word, complaint))


def _forget(word: str) -> None:
    named.forget(word)
    OWN_LAYERS.pop(word, None)
    _GRADIENTS.pop(word, None)


def _model_of(factory: Any) -> Model:
    def build(*_: object) -> nn.Module:
        module: nn.Module = factory()
        return module

    return Model(build)


def _checked_gradients(word: str) -> dict[str, torch.Tensor]:
    """Train a layer twice on one batch."""
    with named.naming_layer(word):
        complaint = _complaint(word)
        if complaint:
            raise LayerError(named.refusal(word, complaint))
        first, again = _gradients(word), _gradients(word)
    for name, gradient in first.items():
        if not torch.equal(gradient, again[name]):
            complaint = f"two runs give {name!r} two gradients; take all chance from the generator"
            raise LayerError(named.refusal(word, complaint))
    return first


def _complaint(word: str) -> str:
    """Say which tensor of a layer a scenario cannot hand over, or ""."""
    with torch.device("meta"):
        module = MODELS[word].build(_ALONE, 0)
    parameters = dict(module.named_parameters())
    if not parameters:
        return "it has no parameters"
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            return f"its parameter {name!r} is frozen; leave requires_grad=True"
    for name, _ in module.named_buffers():
        return f"it has the buffer {name!r}; a layer has parameters alone"
    return ""


def _gradients(word: str) -> dict[str, torch.Tensor]:
    """Train a layer alone, on one batch that is always the same.

    Raises:
        LayerError: The layer raises, changes or leaves out a parameter, or has a loss or a
            gradient that is not finite.
    """
    specs = named.module_parameters(word, _ALONE)
    values = {spec.name: initial_value(_ALONE, spec, 0).float() for spec in specs}
    parts = {name: value.clone().requires_grad_() for name, value in values.items()}
    scenario = Scenario(_ALONE, specs, (1,), 1, module=word)
    with named.naming_layer(word), exact_arithmetic():
        loss = named.module_loss(scenario, parts, rank=0, step=0, micro_batch=0)
        named.require_finite(word, loss, "its loss")
        found = torch.autograd.grad(loss, list(parts.values()), allow_unused=True)
        gradients = dict(zip(parts, found, strict=True))
        for name, part in parts.items():
            misuse = _misuse(part, values[name], gradients[name])
            if misuse:
                raise LayerError(named.refusal(word, f"{misuse} {name!r}"))
            named.require_finite(word, gradients[name], f"the gradient of {name!r}")
    return gradients


def _misuse(
    part: torch.Tensor, value: torch.Tensor, gradient: torch.Tensor | None
) -> str:
    """Return a complaint, to be followed by the parameter's name, or "".

    A layer may not change a parameter, leave it out, or give it a sparse gradient. `value` is the
    parameter's value before.
    """
    # The version shows a change that was undone.
    if part._version or not torch.equal(part, value):  # noqa: SLF001
        return "it changes its parameter"
    if gradient is None:
        return "its loss does not use"
    # A scenario would have to know which rows a sparse gradient has, and how often.
    if gradient.is_sparse:
        return "leave sparse=False; no scenario describes the sparse gradient of"
    return ""
