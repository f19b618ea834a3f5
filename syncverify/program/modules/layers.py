"""Layers of a user's own, which a contract names and scenarios train.

A contract is trusted, and so its `layers` are imported. A scenario, and so a token or an entry
of a database, has a layer's word alone: nothing is ever imported for it.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

from syncverify.errors import UsageError
from syncverify.plain_text import kind_of, message_of
from syncverify.program.modules import named
from syncverify.program.modules.model import Model, initial_value
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.scenario.vocabulary import MODULES
from syncverify.subjects.subject import imported

_ALONE: Final = MeshSpec((1,), ("dp",))
# Paths of the layers that this process knows, by word.
_PROVIDED: Final[dict[str, str]] = {}


def provide_layers(capabilities: Capabilities) -> None:
    """Let scenarios of this process train the layers of a contract.

    Raises:
        UsageError: A layer cannot be imported, or scenarios cannot train it.
    """
    for word, path in capabilities.layer_paths.items():
        if _PROVIDED.get(word) == path:
            continue
        found = imported(path, "layer")
        named.forget(word)
        named.MODELS[word] = found if isinstance(found, Model) else _model_of(found)
        MODULES[word] = f"of your own, {path}"
        complaint = _complaint(word)
        if complaint:
            named.forget(word)
            del MODULES[word]
            raise UsageError(f"layer {path!r} cannot be trained: {complaint}")
        _PROVIDED[word] = path


def forget_layers() -> None:
    """Be as a process that has read no contract with layers."""
    while _PROVIDED:
        word, _ = _PROVIDED.popitem()
        named.forget(word)
        del MODULES[word]


def _model_of(factory: Any) -> Model:
    def build(*_: object) -> nn.Module:
        module: nn.Module = factory()
        return module

    return Model(build)


def _complaint(word: str) -> str:
    """Train a layer twice on one batch; say what stands against it, or ""."""
    try:
        if not named.module_parameters(word, _ALONE):
            return "it has no parameters"
        first, again = _gradients(word), _gradients(word)
    except Exception as error:  # noqa: BLE001  # of the user's code
        return f"{kind_of(error)}: {message_of(error)}"
    for name, gradient in first.items():
        if gradient is None:
            return f"its loss does not use {name!r}"
        if not torch.equal(gradient, again[name]):
            return f"two runs give {name!r} two gradients; take all chance from the generator"
    return ""


def _gradients(word: str) -> dict[str, Any]:
    specs = named.module_parameters(word, _ALONE)
    parts = {
        spec.name: initial_value(_ALONE, spec, 0).float().requires_grad_()
        for spec in specs
    }
    scenario = Scenario(_ALONE, specs, (1,), 1, module=word)
    loss = named.module_loss(scenario, parts, rank=0, step=0, micro_batch=0)
    gradients = torch.autograd.grad(loss, list(parts.values()), allow_unused=True)
    return dict(zip(parts, gradients, strict=True))
