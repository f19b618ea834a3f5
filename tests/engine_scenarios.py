"""Scenarios of one feature of autograd, which need no DTensor."""

from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec


def scenario_of(topic: str, word: str) -> Scenario:
    """Return a scenario with a word of `use` or of `backward`."""
    use = word if topic == "use" else PLAIN
    shapes: list[tuple[int, ...]] = [(3,), (2, 3), (5,)]
    if word == "added_to_another":
        shapes = [(3,), (3,), (3,)]
    return Scenario(
        mesh=MeshSpec((2,), ("dp",)),
        parameters=tuple(
            ParameterSpec(f"p{index}", shape, ("R",), use=use)
            for index, shape in enumerate(shapes)
        ),
        accumulations=(2, 1, 2),
        bucket_cap_bytes=32,
        backward=word if topic == "backward" else PLAIN,
    )
