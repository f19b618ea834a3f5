"""What is played: programs like those that a search draws, and larger ones."""

from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.subject import Subject, resolve

ONE_BUCKET_BYTES = 2**20


def subject() -> Subject:
    """Find the synchronizer of this project, by name as users do."""
    return resolve("synchronizer")


def four_ranks() -> tuple[Scenario, ...]:
    """Return three programs of three steps on four ranks: plain, two axes, small cap."""
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


def three_axes(size: int) -> Scenario:
    """Return a program of three steps on a cube of ranks."""
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
