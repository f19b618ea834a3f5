from syncverify.coverage import Coverage
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario

LINE = MeshSpec((4,), ("dp",))
SMALL = Scenario(LINE, (ParameterSpec("p0", (), ("R",)),), (1,), 2**20)
LARGE = Scenario(
    MeshSpec((2, 2), ("dp", "tp")),
    (
        ParameterSpec("p0", (5,), ("R", "S0"), "bfloat16", "float32"),
        ParameterSpec("p1", (5,), ("R", "R"), group=1),
        ParameterSpec("p2", (2,), None, "float16", requires_grad=False),
    ),
    (2, 1),
    16,
)


def nonzero(coverage: Coverage) -> dict[str, dict[str, int]]:
    table = coverage.table()
    return {
        topic: {name: count for name, count in counts.items() if count}
        for topic, counts in table.items()
    }


def test_nothing_covered_shows_zeros() -> None:
    assert Coverage().table() == {
        "ranks": {},
        "mesh": {"1 axis": 0, "2 axes": 0, "axis of size 1": 0},
        "parameters": {
            "replicated": 0,
            "sharded": 0,
            "uneven or empty shard": 0,
            "plain": 0,
            "frozen": 0,
            "scalar": 0,
        },
        "dtype": {"float32": 0, "bfloat16": 0, "float16": 0, "own gradient dtype": 0},
        "reduction": {"none": 0, "over 1 axis": 0, "over 2 axes": 0},
        "accumulations": {},
        "steps": {},
        "buckets": {"cap splits": 0, "cap does not split": 0, "2 groups": 0},
    }


def test_small_scenario() -> None:
    coverage = Coverage()
    coverage.add(SMALL)
    assert nonzero(coverage) == {
        "ranks": {"4": 1},
        "mesh": {"1 axis": 1},
        "parameters": {"replicated": 1, "scalar": 1},
        "dtype": {"float32": 1},
        "reduction": {"over 1 axis": 1},
        "accumulations": {"1": 1},
        "steps": {"1": 1},
        "buckets": {"cap does not split": 1},
    }


def test_large_scenario() -> None:
    coverage = Coverage()
    coverage.add(LARGE)
    assert nonzero(coverage) == {
        "ranks": {"4": 1},
        "mesh": {"2 axes": 1},
        "parameters": {
            "replicated": 1,
            "sharded": 1,
            "uneven or empty shard": 1,
            "plain": 1,
            "frozen": 1,
        },
        "dtype": {"float32": 1, "bfloat16": 1, "float16": 1, "own gradient dtype": 1},
        "reduction": {"none": 1, "over 1 axis": 1, "over 2 axes": 1},
        "accumulations": {"1": 1, "2": 1, "varying": 1},
        "steps": {"2": 1},
        "buckets": {"cap splits": 1, "2 groups": 1},
    }


def test_a_feature_counts_once_per_scenario() -> None:
    coverage = Coverage()
    for _ in range(3):
        coverage.add(SMALL)
    coverage.add(LARGE)
    assert coverage.num_scenarios == 4
    assert coverage.table()["ranks"] == {"4": 4}
    assert coverage.table()["parameters"]["scalar"] == 3


def test_cap_splits_counts_trainable_local_bytes_of_one_group() -> None:
    """Two of 8 elements: 32 bytes each, 16 where the gradient is bfloat16."""

    def split(cap: int, *, group: int = 0, **changes: object) -> int:
        specs = (
            ParameterSpec("p0", (8,), ("R",)),
            ParameterSpec("p1", (8,), ("R",), group=group, **changes),
        )
        coverage = Coverage()
        coverage.add(Scenario(LINE, specs, (1,), cap))
        return coverage.table()["buckets"]["cap splits"]

    assert (split(63), split(64)) == (1, 0)
    assert (split(47, dtype="bfloat16"), split(48, dtype="bfloat16")) == (1, 0)
    assert (split(31, group=1), split(32, group=1)) == (1, 0)
    assert (split(31, requires_grad=False), split(32, requires_grad=False)) == (1, 0)
