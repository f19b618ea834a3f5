"""Strategies for `torch.nn` modules and their parameters."""

import functools
import itertools
from dataclasses import replace

from hypothesis import strategies as st

from syncverify.playing.program.modules import module_parameters
from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.contract_meshes import Dtypes, covers_all, dtypes
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import PLAIN, TABLE, WORDS
from syncverify.scenario.features import features_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

_ONE_OWN_IN = 4
_NAMES = [name for name in WORDS["module"] if name != PLAIN]
_DRAWN_APART = frozenset({"accumulations", "steps", "buckets"})
_DTYPES: list[Dtypes] = [("float32", None), ("bfloat16", None), ("bfloat16", "float32")]


@functools.lru_cache
def modules(
    mesh: MeshSpec,
    *,
    capabilities: Capabilities = EVERYTHING,
    one_in: int = TABLE["module"].one_in,
) -> st.SearchStrategy[str]:
    """Generate names of modules, mostly the word for no module.

    One of `one_in` names is a module's, on average. Shrinks toward no module, then toward few
    parameters.
    """
    fitting = [name for name in _NAMES if _fits(name, mesh, capabilities)]
    words = [PLAIN] * max(1, (one_in - 1) * len(fitting)) + fitting
    own = [name for name in capabilities.layer_paths if _fits(name, mesh, capabilities)]
    # Hypothesis draws unevenly, so that rare layers might not come at all.
    plain = [PLAIN] * max(0, (_ONE_OWN_IN - 1) * len(own) - len(words))
    times = (len(plain) + len(words)) // ((_ONE_OWN_IN - 1) * len(own)) if own else 0
    return st.sampled_from(plain + words + own * times)


@functools.lru_cache
def module_parameter_lists(
    name: str, mesh: MeshSpec, *, capabilities: Capabilities = EVERYTHING
) -> st.SearchStrategy[tuple[ParameterSpec, ...]]:
    """Generate the parameters of a module: one dtype, one or two groups.

    Shrinks toward trainable float32 parameters in one group.
    """
    listed = module_parameters(name, mesh)
    may_freeze = capabilities.covers("parameters", "frozen")
    may_group = capabilities.covers("buckets", "2 groups")
    kinds = itertools.product(
        range(1, 2 + may_freeze), range(1, 2 + may_group), _dtypes_of(capabilities)
    )
    return st.sampled_from([*kinds]).map(lambda kind: _of_kind(listed, *kind))


def _fits(name: str, mesh: MeshSpec, capabilities: Capabilities) -> bool:
    """Tell whether a contract covers a module and every feature of its parameters."""
    kinds = _dtypes_of(capabilities)
    if not kinds or not capabilities.covers("module", name):
        return False
    found = _features_of(name, mesh, module_parameters(name, mesh), kinds[0])
    # Steps and the bucket cap are drawn without regard to the module.
    return covers_all(capabilities, (f for f in found if f.topic not in _DRAWN_APART))


@functools.lru_cache(maxsize=1024)
def _features_of(
    name: str, mesh: MeshSpec, listed: tuple[ParameterSpec, ...], kind: Dtypes
) -> frozenset[Feature]:
    """List the features of a scenario that trains a module with these parameters."""
    specs = _of_kind(listed, 1, 1, kind)
    scenario = Scenario(mesh, specs, (1,), bucket_cap_bytes=1, module=name)
    return frozenset(features_of(scenario))


@functools.cache
def _dtypes_of(capabilities: Capabilities) -> list[Dtypes]:
    return [kind for kind in _DTYPES if kind in dtypes(capabilities)]


def _of_kind(
    listed: tuple[ParameterSpec, ...],
    trainable_every: int,
    num_groups: int,
    kind: Dtypes,
) -> tuple[ParameterSpec, ...]:
    """Train one of `trainable_every` parameters; groups take turns."""
    changed = list[ParameterSpec]()
    for index, spec in enumerate(listed):
        group, trains = index % num_groups, index % trainable_every == 0
        spec = replace(spec, dtype=kind[0], grad_dtype=kind[1])
        changed.append(replace(spec, group=group, requires_grad=trains))
    return tuple(changed)
