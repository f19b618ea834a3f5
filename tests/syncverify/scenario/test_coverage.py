"""How often scenarios had each feature, and which pairs of features are missing."""

import pytest

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.scenario.specs import MeshSpec, ParameterSpec

PLAIN = Capabilities(varying_accumulations=True)

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
        if any(counts.values())
    }


def test_large_scenario_counts_each_of_its_values() -> None:
    coverage = Coverage()
    coverage.add(LARGE)
    assert nonzero(coverage) == {
        "ranks": {"4": 1},
        "mesh": {"2 axes": 1},
        "parameters": {"replicated": 1, "sharded": 1, "uneven or empty shard": 1, "frozen": 1},
        "dtype": {"float32": 1, "bfloat16": 1, "own gradient dtype": 1, "several": 1},
        "reduction": {"over 1 axis": 1, "over 2 axes": 1},
        "accumulations": {"1": 1, "2": 1, "varying": 1},
        "steps": {"2": 1},
        "buckets": {"cap splits": 1, "2 groups": 1},
    }  # fmt: skip


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


def test_a_pair_is_missing_until_a_scenario_has_both_values() -> None:
    coverage = Coverage(Space(PLAIN, 4))
    coverage.add(SMALL)
    assert (("ranks", "4"), ("mesh", "1 axis")) not in coverage.missing_pairs()
    assert (("ranks", "3"), ("mesh", "1 axis")) in coverage.missing_pairs()
    assert (("mesh", "2 axes"), ("dtype", "bfloat16")) in coverage.missing_pairs()
    coverage.add(LARGE)
    assert (("mesh", "2 axes"), ("dtype", "bfloat16")) not in coverage.missing_pairs()
    # Two scenarios have one value each.
    assert (("mesh", "1 axis"), ("dtype", "float16")) in coverage.missing_pairs()


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (("steps", "1"), ("accumulations", "varying"), "one step has one count"),
        (("ranks", "3"), ("reduction", "over 2 axes"), "a world of 3 ranks lacks 2 axes of"),
        (("ranks", "1"), ("reduction", "over 1 axis"), "a world of 1 rank lacks an axis of"),
        (
            ("mesh", "axis of size 1"), ("reduction", "over 2 axes"),
            "a reduction over two axes needs two ranks on each",
        ),
    ],
)  # fmt: skip
def test_pairs_that_cannot_occur_have_a_reason(
    one: tuple[str, str], other: tuple[str, str], why: str
) -> None:
    space = Space(PLAIN, 4)
    first, second = Feature(*one), Feature(*other)
    assert (space.why_not(first, second) or "").startswith(why)
    assert space.why_not(first, second) == space.why_not(second, first)
    assert {(first, second), (second, first)}.isdisjoint(space.pairs())
