"""The plugin of Hypothesis: strategies for the types of which scenarios are made.

Every import of Hypothesis in an environment with syncverify calls `register`. So this module
imports no torch, and no strategy before a test asks for one.
"""

from __future__ import annotations

from hypothesis import strategies as st

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec


def register() -> None:
    """Let `st.from_type`, `st.builds` and `@given(...)` find the strategies by type."""
    st.register_type_strategy(Scenario, _scenarios)
    st.register_type_strategy(MeshSpec, _meshes)
    st.register_type_strategy(ParameterSpec, _parameters)


def _scenarios(_type: type) -> st.SearchStrategy[Scenario]:
    from syncverify.strategies import scenarios  # imports torch

    return scenarios()


def _meshes(_type: type) -> st.SearchStrategy[MeshSpec]:
    from syncverify.strategies import meshes

    return meshes()


def _parameters(_type: type) -> st.SearchStrategy[ParameterSpec]:
    from syncverify.strategies import parameters

    return _meshes(MeshSpec).flatmap(parameters)
