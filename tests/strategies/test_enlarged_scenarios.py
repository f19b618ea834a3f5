"""Scenarios with one large number are scenarios that can be played."""

import pytest

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies.enlarged_scenarios import _with_elements


@pytest.mark.parametrize(
    ("placements", "shape", "large"),
    [
        (("_S1", "S1"), (3, 0), (257, 4)),
        (("_S0", "S0"), (4, 3), (344, 3)),
        (("S0", "R"), (3, 3), (342, 3)),
        (None, (), (1025,)),
    ],
)
def test_dims_with_even_shards_keep_them(
    placements: tuple[str, ...] | None, shape: tuple[int, ...], large: tuple[int, ...]
) -> None:
    """Strided shards have to be even, or the scenario is refused."""
    mesh, spec = MeshSpec((2, 2), ("dp", "tp")), ParameterSpec("w", shape, placements)
    found = _with_elements(Scenario(mesh, (spec,), (1,), 64), 1025)
    assert found.parameters[0].global_shape == large
