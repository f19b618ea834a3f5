"""Strategies for real modules and their parameters."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

from hypothesis import strategies as st

from syncverify.features import beyond
from syncverify.modules import module_parameters
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities
from syncverify.vocabulary import MODULES, PLAIN

# A module costs as much as several scenarios without one, and shows less of their space.
_ONE_IN = 20
_NAMES = [name for name in MODULES if name != PLAIN]
_Dtypes = tuple[str, str | None]


@functools.lru_cache
def modules(
    mesh: MeshSpec, *, capabilities: Capabilities = DEFAULT_CAPABILITIES
) -> st.SearchStrategy[str]:
    """Generate names of modules; most scenarios have none.

    Shrinks toward none, then toward few parameters.

    Args:
        mesh: Mesh of DTensor parameters.
        capabilities: What the subject promises.

    Returns:
        A strategy for words of `vocabulary.MODULES`.
    """
    fitting = [name for name in _NAMES if _fits(name, mesh, capabilities)]
    return st.sampled_from([PLAIN] * max(1, (_ONE_IN - 1) * len(fitting)) + fitting)


@functools.lru_cache
def module_parameter_lists(
    name: str, mesh: MeshSpec, *, capabilities: Capabilities = DEFAULT_CAPABILITIES
) -> st.SearchStrategy[tuple[ParameterSpec, ...]]:
    """Generate the parameters of a module, of one dtype, in one group or two.

    Shrinks toward trainable float32 parameters in one group.

    Args:
        name: A word of `vocabulary.MODULES`.
        mesh: Mesh of DTensor parameters.
        capabilities: What the subject promises.

    Returns:
        A strategy for tuples of `ParameterSpec`.
    """
    listed = module_parameters(name, mesh)
    dtypes: list[_Dtypes] = [("float32", None), ("bfloat16", None)]
    if capabilities.separate_grad_dtype:
        dtypes.append(("bfloat16", "float32"))
    # Every parameter is trainable or every other one, and likewise for groups.
    kinds = list(itertools.product((1, 2), (1, 2), dtypes))
    return st.sampled_from(kinds).map(lambda kind: _of_kind(listed, *kind))


def _fits(name: str, mesh: MeshSpec, capabilities: Capabilities) -> bool:
    if not capabilities.covers("module", name):
        return False
    specs = module_parameters(name, mesh)
    scenario = Scenario(mesh, specs, (1,), bucket_cap_bytes=1, module=name)
    features = all(capabilities.covers(*feature) for feature in beyond(scenario))
    return features and capabilities.lacking(scenario) is None


def _of_kind(
    listed: tuple[ParameterSpec, ...], one_in: int, num_groups: int, dtypes: _Dtypes
) -> tuple[ParameterSpec, ...]:
    return tuple(
        replace(
            spec,
            dtype=dtypes[0],
            grad_dtype=dtypes[1],
            group=index % num_groups,
            requires_grad=index % one_in == 0,
        )
        for index, spec in enumerate(listed)
    )
