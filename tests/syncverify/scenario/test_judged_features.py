"""A feature counts in coverage where a property judges something with it."""

from dataclasses import replace
from typing import Any

import pytest

from syncverify.scenario.contract import PLAIN_CONTRACT, Capabilities
from syncverify.scenario.coverage import Coverage, judged_features
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.features import features_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.scenario.specs import MeshSpec, ParameterSpec

PAIR = MeshSpec((2,), ("dp",))
SUMMED = ParameterSpec("p0", (4, 4), ("R",))
OTHER = ParameterSpec("p1", (4, 4), ("R",))
SHARD = ParameterSpec("p2", (4, 4), ("S0",))


def of(*specs: ParameterSpec, **words: Any) -> Scenario:
    """Return a scenario of two ranks, two steps of two micro-batches, with some words."""
    plain = {"mesh": PAIR, "accumulations": (2, 2), "bucket_cap_bytes": 1 << 20}
    return Scenario(parameters=specs, **{**plain, **words})


def many(count: int, spec: ParameterSpec) -> tuple[ParameterSpec, ...]:
    return tuple(replace(spec, name=f"p{number}") for number in range(count))


ALONE = MeshSpec((1,), ("dp",))
TALL = replace(SUMMED, memory_format="transposed")
PARTLY = {"use": "added_to_another"}
# A feature, a scenario that contains it and judges nothing with it, and one that does.
FEATURES = [
    ("size=many buckets", of(*many(17, SHARD), bucket_cap_bytes=4),
     of(*many(17, SUMMED), bucket_cap_bytes=64)),
    ("size=many buckets", of(*many(17, SUMMED), bucket_cap_bytes=64, mesh=ALONE),
     of(*many(18, SUMMED), bucket_cap_bytes=64)),
    ("size=many steps",
     of(SUMMED, accumulations=(1,) * 6, events=("zero_before_wait",) * 6),
     of(SUMMED, accumulations=(1,) * 6)),
    ("parameters=sharded", of(SUMMED, replace(SHARD, used="never")), of(SUMMED, SHARD)),
    ("dtype=bfloat16", of(SUMMED, replace(OTHER, dtype="bfloat16", requires_grad=False)),
     of(SUMMED, replace(OTHER, dtype="bfloat16"))),
    ("buckets=cap splits", of(SUMMED, SHARD, bucket_cap_bytes=64),
     of(SUMMED, OTHER, bucket_cap_bytes=64)),
    ("accumulations=varying", of(SHARD, accumulations=(1, 2)), of(SUMMED, accumulations=(1, 2))),
    ("gradient=cancelling", of(replace(SUMMED, gradient="cancelling")),
     of(replace(SUMMED, gradient="cancelling"), accumulations=(3, 3))),
    ("memory_format=transposed", of(replace(TALL, global_shape=(4, 1))), of(TALL)),
    ("used=not_in_first_micro_batch",
     of(replace(SUMMED, used="not_in_first_micro_batch"), accumulations=(1, 1)),
     of(replace(SUMMED, used="not_in_first_micro_batch"))),
    ("use=added_to_another", of(replace(SUMMED, **PARTLY)), of(SUMMED, replace(OTHER, **PARTLY))),
    ("backward=inputs", of(SHARD, backward="inputs"), of(SUMMED, backward="inputs")),
    ("event=missing_backward",
     of(SUMMED, accumulations=(1, 1), events=("plain", "missing_backward")),
     of(SUMMED, events=("plain", "missing_backward"))),
    ("event=freeze", of(SUMMED, SHARD, events=("plain", "freeze")),
     of(SUMMED, OTHER, events=("plain", "freeze"))),
    ("event=tail", of(SUMMED, events=("failing_collectives", "tail")),
     of(SUMMED, events=("tail", "failing_collectives"))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "idle", "shown"),
    FEATURES,
    ids=[f"{name}-{number}" for number, (name, *_) in enumerate(FEATURES)],
)
def test_a_feature_counts_where_something_is_judged_with_it(
    name: str, idle: Scenario, shown: Scenario
) -> None:
    feature = Feature.of(name)
    assert feature in {*features_of(idle)}
    assert feature not in judged_features(idle)
    assert feature in judged_features(shown)


def test_a_contract_without_sums_counts_what_is_there() -> None:
    coverage = Coverage(Space(PLAIN_CONTRACT, 1))
    assert Feature("dtype", "float32") in coverage.judged(of(SUMMED, mesh=ALONE))


def test_steps_after_a_refusal_count_for_nothing() -> None:
    """An error in step 1 that the contract allows; what may be refused has been judged."""
    own = Capabilities(features=frozenset({"event", "backward"}))
    scenario = of(SUMMED, backward="inputs", events=("plain", "empty_step"))
    coverage = Coverage(Space(own, 4))
    judged = coverage.judged(scenario, 1)
    assert Feature("event", "empty_step") in judged
    assert Feature("backward", "inputs") in judged
    assert Feature("backward", "inputs") not in coverage.judged(scenario, 0)
    assert Feature("steps", "2") not in judged


def test_values_that_no_scenario_can_judge_are_not_in_the_space() -> None:
    event = Capabilities(
        features=frozenset({"event"}), outside=frozenset({"steps=2", "steps=3"})
    )
    values = Space(event, 4).values()["event"]
    assert "rebind" not in values
    assert "wait_twice" in values
