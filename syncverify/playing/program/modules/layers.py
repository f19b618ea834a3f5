"""Models by the words that scenarios use: those of the table, and layers of a user's own.

A contract names layers. It is trusted, and so its `layers` are imported. A scenario, and so a token or
an entry of a database, has a layer's word alone: nothing is ever imported for it.
"""

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
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.program.modules.model import MODELS, Model, initial_value
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OWN_LAYERS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject_path import imported

# Paths of the layers of a user's own, by word.
PATHS: Final[dict[str, str]] = {}
_ALONE: Final = MeshSpec((1,), ("dp",))
# Gradients of each layer that this process knows, by word and parameter.
_GRADIENTS: Final[dict[str, dict[str, torch.Tensor]]] = {}


@functools.lru_cache(maxsize=1024)
def module_parameters(name: str, mesh: MeshSpec) -> tuple[ParameterSpec, ...]:
    """List the parameters of a model on a mesh, all in float32 and in group 0."""
    return MODELS[name].parameters(mesh)


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
    rank: int,
    step: int,
    micro_batch: int,
) -> torch.Tensor:
    """Return a module's loss on the batch of one micro-batch, a scalar in float32.

    The batch depends on rank, step and micro-batch, so each has another gradient.
    """
    seed = (rank * 1009 + step) * 1009 + micro_batch
    generator = torch.Generator().manual_seed(seed)
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
    """Raise LayerError for a layer of a user's own whose loss or gradient is not finite."""
    if word in PATHS and not tensor.isfinite().all():
        raise LayerError(refusal(word, f"{noun} is not finite"))


@functools.lru_cache(maxsize=1024)
def _skeleton(name: str, mesh: MeshSpec, rank: int) -> nn.Module:
    """Build a module without data; one per rank, since ranks may be threads."""
    with torch.device("meta"):
        module = MODELS[name].build(mesh, rank)
    return module


def provide_layers(capabilities: Capabilities) -> None:
    """Let scenarios train the layers of a contract; raise UsageError where they cannot."""
    for word, path in capabilities.layer_paths.items():
        if PATHS.get(word) == path:
            continue
        found = imported(path, "layer")
        _forget(word)
        is_model = isinstance(found, Model)
        MODELS[word] = found if is_model else Model(lambda *_, make=found: make())
        PATHS[word] = path
        OWN_LAYERS[word] = f"of your own, {path}"
        try:
            _GRADIENTS[word] = _checked_gradients(word)
        except BaseException:  # Ctrl-C as well: the next call checks again
            _forget(word)
            raise


def require_same_gradients(word: str) -> None:
    """Raise LayerError if a layer of a user's own no longer has the gradients of the start."""
    if word not in _GRADIENTS:
        return
    for name, gradient in _gradients(word).items():
        if not torch.equal(gradient, _GRADIENTS[word][name]):
            complaint = (
                f"{name!r} has a gradient different from the one at the start, on the same batch; "
                "keep no state between calls"
            )
            raise LayerError(refusal(word, complaint))


def _forget(word: str) -> None:
    """Forget a layer; another one may take its word."""
    MODELS.pop(word, None)
    PATHS.pop(word, None)
    module_parameters.cache_clear()
    _skeleton.cache_clear()
    OWN_LAYERS.pop(word, None)
    _GRADIENTS.pop(word, None)


def _checked_gradients(word: str) -> dict[str, torch.Tensor]:
    """Train a layer twice on one batch."""
    with naming_layer(word):
        for complaint in _complaints(word):
            raise LayerError(refusal(word, complaint))
        first, again = _gradients(word), _gradients(word)
    for name, gradient in first.items():
        if not torch.equal(gradient, again[name]):
            complaint = f"two runs give {name!r} two gradients; take all chance from the generator"
            raise LayerError(refusal(word, complaint))
    return first


def _complaints(word: str) -> Iterator[str]:
    """Say which tensors of a layer a scenario cannot hand over."""
    with torch.device("meta"):
        module = MODELS[word].build(_ALONE, 0)
    parameters = dict(module.named_parameters())
    if not parameters:
        yield "it has no parameters"
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            yield f"its parameter {name!r} is frozen; leave requires_grad=True"
    for name, _ in module.named_buffers():
        yield f"it has the buffer {name!r}; a layer has parameters alone"


def _gradients(word: str) -> dict[str, torch.Tensor]:
    """Train a layer alone, on one batch that is always the same; raise LayerError for a misuse."""
    specs = module_parameters(word, _ALONE)
    values = {spec.name: initial_value(_ALONE, spec, 0).float() for spec in specs}
    parts = {name: value.clone().requires_grad_() for name, value in values.items()}
    scenario = Scenario(_ALONE, specs, (1,), 1, module=word)
    with naming_layer(word), exact_arithmetic():
        loss = module_loss(scenario, parts, 0, 0, 0)
        require_finite(word, loss, "its loss")
        found = torch.autograd.grad(loss, list(parts.values()), allow_unused=True)
        gradients = dict(zip(parts, found, strict=True))
        for name, part in parts.items():
            for misuse in _misuses(part, values[name], gradients[name]):
                raise LayerError(refusal(word, f"{misuse} {name!r}"))
            require_finite(word, gradients[name], f"the gradient of {name!r}")
    return gradients


def _misuses(
    part: torch.Tensor, value: torch.Tensor, gradient: torch.Tensor | None
) -> Iterator[str]:
    """Yield complaints, to be followed by the parameter's name; `value` is its value before."""
    # The version shows a change that was undone.
    if part._version or not torch.equal(part, value):  # noqa: SLF001
        yield "it changes its parameter"
    if gradient is None:
        yield "its loss does not use"
    # A scenario would have to know which rows a sparse gradient has, and how often.
    elif gradient.is_sparse:
        yield "leave sparse=False; no scenario describes the sparse gradient of"
