"""A scope lists every scenario within its bounds, one of each symmetry class."""

import itertools
from dataclasses import replace

import pytest

from syncverify.errors import UsageError
from syncverify.scenario.contract import PLAIN_CONTRACT, Capabilities
from syncverify.scenario.small_scope import SmallScope, cap_classes
from syncverify.scenario.specs import MeshSpec, ParameterSpec

TWO = MeshSpec((2,), ("dp",))
OTHER = "[a-z+]+"


def replicated(*sizes: int) -> tuple[ParameterSpec, ...]:
    return tuple(
        ParameterSpec(f"p{n}", (size,), ("R",)) for n, size in enumerate(sizes)
    )


def test_the_text_of_a_scope_is_read_back() -> None:
    scope = SmallScope(ranks=4, words=("event", "launch"))
    assert SmallScope.parse(str(scope)) == scope
    assert SmallScope.parse("words=none") == SmallScope(words=())
    assert SmallScope.parse("words=event+event") == SmallScope(words=("event",))
    assert SmallScope.parse("") == SmallScope()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rank=2",
            (
                r"unknown bound 'rank' of a scope: expected ranks, parameters, buckets, "
                r"micro_batches, steps, words"
            ),
        ),
        ("ranks=0", r"expected ranks of a scope from 1 to 8, got '0'"),
        ("steps=many", r"expected steps of a scope from 1 to 8, got 'many'"),
        (
            "words=size",
            rf"unknown words 'size' of a scope: expected none, or some of {OTHER}",
        ),
    ],
)
def test_a_scope_that_does_not_exist_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        SmallScope.parse(text)


def test_no_scenario_is_listed_twice_and_all_are_within_the_bounds() -> None:
    scope = SmallScope(parameters=2, words=("event", "readiness"))
    listed = [
        *scope.scenarios(Capabilities(features=frozenset({"event", "readiness"})))
    ]
    assert len(listed) == len({*listed})
    for scenario in listed:
        assert scenario.mesh.num_ranks == 2
        assert len(scenario.parameters) <= 2
        assert max(scenario.accumulations) <= 2
        assert scenario.num_steps <= 2
        has_event = any(word != "plain" for word in scenario.events)
        assert has_event + (scenario.readiness != "same") <= 1


def test_a_plain_scope_has_each_count_each_order_and_each_cap() -> None:
    """One or two replicated parameters: lists of sizes with a 2, 2 to 4 caps, 2 counts."""
    left_out = {"parameters=sharded", "parameters=ordinary", "parameters=frozen"}
    plain = replace(PLAIN_CONTRACT, outside=frozenset(left_out))
    scope = SmallScope(parameters=2, steps=1, words=())
    listed = [*scope.scenarios(plain)]
    found = {
        (
            tuple(spec.global_shape[0] for spec in each.parameters),
            each.bucket_cap_bytes,
            each.accumulations,
        )
        for each in listed
    }
    lists = {
        (2,): (8, 7),
        (2, 2): (16, 8, 7),
        (2, 3): (20, 12, 8, 7),
        (3, 2): (20, 12, 8, 7),
    }
    assert found == {
        (sizes, cap, counts)
        for sizes, caps in lists.items()
        for cap, counts in itertools.product(caps, [(1,), (2,)])
    }
    assert len(listed) == len(found)


def test_caps_of_more_buckets_are_left_out() -> None:
    specs = replicated(2, 3, 2)
    assert cap_classes(TWO, specs, 3) == [28, 20, 12, 8, 7]
    assert cap_classes(TWO, specs, 2) == [28, 20]
    assert cap_classes(TWO, specs, 1) == [28]
