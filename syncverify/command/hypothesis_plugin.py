"""The plugin of Hypothesis: strategies for the types of which scenarios are made.

Every import of Hypothesis in an environment with syncverify calls `register`. So this module
imports no torch, and no strategy before a test asks for one.
"""

from typing import Any

from hypothesis import strategies as st

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec


def register() -> None:
    """Let `st.from_type`, `st.builds` and `@given(...)` find the strategies by type."""
    for kind in (Scenario, MeshSpec, ParameterSpec):
        st.register_type_strategy(kind, _strategy_of)


def _strategy_of(kind: type) -> st.SearchStrategy[Any]:
    from syncverify.strategies import meshes, parameters, scenarios  # imports torch

    if kind is Scenario:
        return scenarios()
    return meshes() if kind is MeshSpec else meshes().flatmap(parameters)
