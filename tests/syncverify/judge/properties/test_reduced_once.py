"""Traces that violate `each_bucket_reduced_once_per_step`, and traces that pass."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncverify.judge.evidence import Event, ReducedTwice, TooFewElements, launched
from syncverify.judge.properties.collectives import each_bucket_reduced_once_per_step
from syncverify.judge.reference import reference
from syncverify.scenario.contract import Capabilities
from syncverify.trace.records import CollectiveLaunch, Moment
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Observation
from tests.syncverify.judge.properties.handmade_traces import judgement, launch

PAIR = (0, 1)
BYTES = (MemoryRegion(0, 0, 16),)


def found(
    *launches: CollectiveLaunch,
    event: str = "plain",
    observed: Sequence[int] = (),
    capabilities: Capabilities | None = None,
) -> list[Any]:
    """Judge the launches of rank 0 in two steps; `observed` steps came to their end."""
    judged = judgement(launches, ())
    scenario = replace(judged.scenario, accumulations=(1, 1))
    if event != "plain":
        scenario = replace(scenario, events=("plain", event))
    rank_run = judged.run.ranks[0]
    rank_run.observations += [Observation("reduced", n, None, {}) for n in observed]
    oracle = reference(scenario, capabilities or Capabilities())
    changed = replace(judged, scenario=scenario, reference=oracle)
    return list(each_bucket_reduced_once_per_step(changed))


def reduction(sequence: int, name: str = "p", **changes: Any) -> CollectiveLaunch:
    return launch("dp", PAIR, sequence, [(name, 0)], **{"regions": BYTES, **changes})


def test_the_same_bytes_of_one_parameter_may_be_reduced_once() -> None:
    first = reduction(0, moment=Moment("backward", 0, 0))
    second = reduction(1)
    (finding,) = found(first, second)
    assert (finding.cause, finding.rank, finding.parameter) == ("reduced_twice", 0, "p")
    assert finding.summary == "rank 0 reduced the same memory twice in step 0"
    assert finding.evidence == ReducedTwice(
        rank=0,
        step=0,
        events=(
            Event(f"{first} (step 0, micro-batch 0, backward)", first),
            Event(f"{second} (step 0, wait)", second),
        ),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"moment": Moment("wait", 1)},  # the next step
        {"moment": Moment("bind", 0)},  # weights
        {"name": "q"},  # another gradient that is staged in the same memory
        {"regions": (MemoryRegion(0, 16, 32),)},  # other elements of it
        {"operation": "all_gather", "reduce_op": ""},  # the reduced gradients
    ],
)
def test_what_is_something_else_is_no_second_reduction(changes: dict[str, Any]) -> None:
    assert found(reduction(0), reduction(1, **changes)) == []


def test_a_gradient_that_passes_where_another_was_left_is_no_second_reduction() -> None:
    """`.grad` of p stays in the buffer in which q is staged."""
    oracle = judgement((), ()).reference
    p, q = (
        (struct.pack("4f", *oracle.local(spec, 0, 0, [0]).tolist()),)
        for spec in oracle.scenario.parameters[:2]
    )
    first = reduction(0, contents=p)
    assert found(first, reduction(1, contents=q)) == []
    assert found(reduction(0, contents=q), reduction(1, contents=p)) == []
    assert len(found(first, reduction(1, contents=p))) == 1


def test_every_axis_of_a_mesh_reduces_once() -> None:
    """Also where its ranks are as many, and where it has one rank only."""
    rows = launch("row", (0, 1), 0, [("p", 0)], regions=BYTES)
    columns = launch("column", (0, 2), 0, [("p", 0)], regions=BYTES)
    assert found(rows, columns) == []
    alone = [launch("tp", (0,), n, [("p", 0)], regions=BYTES) for n in range(2)]
    assert found(*alone) == []


def test_what_comes_late_has_to_be_reduced_again() -> None:
    late = [reduction(n, moment=Moment("wait", 1)) for n in range(2)]
    assert len(found(*late)) == 1
    assert found(*late, event="extra_backward") == []
    keeps_sums = Capabilities(reduces_each_micro_batch=True)
    assert found(*late, capabilities=keeps_sums) == []


def test_as_much_is_exchanged_as_is_owed() -> None:
    """Four elements each of two parameters; no other rank has a part of the sharded one."""
    launches = [reduction(n, name) for n, name in enumerate("pq")]
    assert found(*launches, observed=[0]) == []
    (finding,) = found(launches[0], observed=[0])
    assert (finding.cause, finding.rank, finding.parameter) == ("not_reduced", 0, None)
    assert finding.summary == (
        "rank 0 has to reduce 8 elements in step 0, but exchanged 4 in 1 collectives"
    )
    assert finding.evidence == TooFewElements(
        rank=0, step=0, owed_numel=8, exchanged_numel=4, events=(launched(launches[0]),)
    )


def test_a_gather_of_all_parts_exchanges_them() -> None:
    gathered = launch("dp", PAIR, 0, operation="all_gather", reduce_op="", numel=8)
    assert found(gathered, observed=[0]) == []


def test_elements_are_counted_in_each_step_and_over_several_ranks_only() -> None:
    launches = [reduction(n, name, numel=8) for n, name in enumerate("pq")]
    (finding,) = found(*launches, observed=[0, 1])
    assert finding.evidence.step == 1
    alone = launch("tp", (0,), 0, numel=8)
    (finding,) = found(alone, observed=[0])
    assert finding.evidence.exchanged_numel == 0
