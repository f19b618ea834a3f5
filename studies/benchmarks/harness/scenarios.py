"""The scenarios that are played: some as a search draws them, and larger ones."""

from dataclasses import replace

from syncverify.scenario.features import without_clear_errors
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.drawing import Drawing
from syncverify.subjects.subject import Subject, resolve

ONE_BUCKET_BYTES = 2**20


def subject() -> Subject:
    """Return the synchronizer of this project, resolved by name."""
    return resolve("synchronizer")


def four_ranks() -> tuple[Scenario, ...]:
    """Return three scenarios of three steps on four ranks: one axis, two axes, small cap."""
    line, grid = MeshSpec((4,), ("dp",)), MeshSpec((2, 2), ("dp", "tp"))
    flat = (
        ParameterSpec("p0", (17,), ("R",)),
        ParameterSpec("p1", (4, 5), ("R",)),
        ParameterSpec("p2", (7,), ("S0",)),
    )
    crossed = (
        ParameterSpec("p0", (17,), ("R", "R")),
        ParameterSpec("p1", (4, 5), ("R", "S0")),
        ParameterSpec("p2", (7,), ("R", "R"), "bfloat16", "float32"),
    )
    return (
        Scenario(line, flat, (2, 2, 2), ONE_BUCKET_BYTES),
        Scenario(grid, crossed, (2, 2, 2), ONE_BUCKET_BYTES),
        Scenario(grid, crossed, (2, 2, 2), 64),
    )


def drawn(number: int) -> tuple[Scenario, ...]:
    """Return scenarios as a search draws them, which gloo can play to the end."""
    own = without_clear_errors(subject().capabilities)
    played = replace(own, outside=own.outside | {"size=many ranks"})
    return tuple(Drawing(played, 4, number, random_seed=0).drawn())


def three_axes(size: int) -> Scenario:
    """Return a scenario of three steps on a mesh of size x size x size ranks."""
    return Scenario(
        MeshSpec((size, size, size), ("pp", "dp", "tp")),
        (
            ParameterSpec("p0", (17,), ("R", "R", "R")),
            ParameterSpec("p1", (80, 5), ("R", "R", "S0")),
            ParameterSpec("p2", (7,), ("S0", "R", "R"), "bfloat16", "float32"),
            ParameterSpec("p3", (40, 6), ("R", "S0", "S1")),
        ),
        (2, 2, 2),
        ONE_BUCKET_BYTES,
    )
