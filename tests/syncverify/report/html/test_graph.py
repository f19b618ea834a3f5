"""The graph that the engine ran: order, streams, hooks, and the edge that is missing."""

from typing import Any

import pytest

from tests.syncverify.report.html.test_page import RACE, TOO_OFTEN, model

pytestmark = pytest.mark.slow

NEVER_JOINS = "syncverify.subjects.bugbank.ordering.streams:NeverJoins"
DIVIDES = "syncverify.subjects.bugbank.numerics.factors:DividesByElements"


def graph(*of: Any) -> Any:
    return model(*of)["violations"][0]["graph"]


def guilty(drawn: Any) -> list[str]:
    return [node["name"] for node in drawn["nodes"] if node["guilty"]]


def test_race_is_an_edge_from_the_accumulation_to_the_hook_that_launches() -> None:
    """The planted defect: the communication stream does not wait for the gradients."""
    drawn = graph(*RACE)
    assert drawn["micro_batch"] == 1
    (missing,) = drawn["missing"]
    assert missing["label"] == "nothing orders these"
    (tail, _), (head, hook) = missing["tail"], missing["head"]
    assert missing["tail"][1] is None  # the node itself
    assert tail == head
    node = drawn["nodes"][tail]
    assert (node["kind"], node["name"], node["stream"]) == ("parameter", "p", "default")
    assert node["hooks"][hook] == {
        "title": "post-accumulate hook on_accumulated",
        "source": "syncverify/subjects/bugbank/bases/view_buckets.py:84 in on_accumulated",
        "lines": [
            "launches all_reduce SUM of 3 x float32 on nccl stream of ranks [0, 1]"
        ],
        "guilty": True,
    }
    assert guilty(drawn) == ["p"]


def test_nodes_have_the_order_in_which_the_engine_ran_them() -> None:
    drawn = graph(*RACE)
    names = [node["name"] for node in drawn["ran"]]
    assert [node["order"] for node in drawn["ran"]] == [*range(1, 10)]
    assert names[0] == "AddBackward0"
    assert names.index("q") < names.index("p") == 8  # the engine takes the newest first
    depth = {node["order"]: node["depth"] for node in drawn["nodes"] if node["order"]}
    places = {node["order"]: at for at, node in enumerate(drawn["nodes"])}
    orders = {at: order for order, at in places.items()}
    assert all(orders[tail] < orders[head] for tail, head in drawn["edges"])
    assert all(depth[orders[a]] < depth[orders[b]] for a, b in drawn["edges"])


def test_end_of_a_race_outside_of_the_backward_is_a_node_of_its_own() -> None:
    drawn = graph(NEVER_JOINS, "wait_orders_reads_after_reduce", "read_before_reduced")
    (missing,) = drawn["missing"]
    tail, head = (drawn["nodes"][missing[end][0]] for end in ("tail", "head"))
    assert tail["hooks"][missing["tail"][1]]["title"].startswith("post-accumulate hook")
    assert head["kind"] == "later"
    assert head["name"] == "step 0, wait"
    assert head["lines"] == ["read by the training program on default"]


def test_reduction_that_is_too_early_points_to_the_accumulation_after_it() -> None:
    of = (TOO_OFTEN, "accumulation_is_local_until_reduced", "reduced_early")
    drawn = graph(*of)
    assert (drawn["step"], drawn["micro_batch"]) == (0, 0)
    (missing,) = drawn["missing"]
    tail, head = (drawn["nodes"][missing[end][0]] for end in ("tail", "head"))
    assert tail["hooks"][missing["tail"][1]]["guilty"]
    assert head["name"] == "step 0, micro-batch 1, backward"
    assert head["lines"] == [f"accumulates the gradient of {tail['name']}"]


def test_wrong_gradient_marks_the_accumulation_of_its_parameter() -> None:
    drawn = graph(DIVIDES, "gradient_equals_reference", "scaled")
    assert drawn["missing"] == []
    assert "p" in guilty(drawn)
