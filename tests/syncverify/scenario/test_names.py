"""Names of features in a contract: unknown ones and vain ones are refused."""

from typing import Any

import pytest

from syncverify.errors import UsageError
from syncverify.scenario.contract import EVERYTHING, PLAIN_CONTRACT, Capabilities
from syncverify.scenario.names import check_names

BEYOND_IN_VAIN = (
    "in `outside` has no effect: features beyond plain training steps are outside unless "
    "`features`, `right` or `refused` names them; take it out"
)
PLAIN_IN_VAIN = (
    "has no effect: it is a value of plain training steps, which every contract promises "
    "unless `outside` or `refused` names them; take it out"
)
REFUSED: dict[str, tuple[dict[str, set[str]], str]] = {
    "slip in a value": (
        {"features": {"event=tial"}},
        ("unknown feature 'event=tial' in `features`, expected `topic` or `topic=value`; "
        "the nearest is 'event=tail'"),
    ),
    "slip in a topic": (
        {"right": {"evnt=tail"}},
        ("unknown feature 'evnt=tail' in `right`, expected `topic` or `topic=value`; the "
        "nearest is 'event=tail'"),
    ),
    "topic of plain values alone": (
        {"outside": {"buckets"}},
        ("unknown feature 'buckets' in `outside`, expected `topic` or `topic=value`; the "
        "nearest is 'buckets=3 groups'"),
    ),
    "ranks that do not exist": (
        {"outside": {"ranks=0"}},
        ("unknown feature 'ranks=0' in `outside`, expected `topic` or `topic=value`; a "
        "number of ranks is at least 1, such as 'ranks=4'"),
    ),
    "more ranks than Python reads digits": (
        {"outside": {"ranks=" + "9" * 5000}},
        ("unknown feature 'ranks=" + "9" * 5000 + "' in `outside`, expected `topic` or "
        "`topic=value`; a number of ranks is at least 1, such as 'ranks=4'"),
    ),
    "plain value that is promised": (
        {"features": {"dtype=float16"}}, f"'dtype=float16' in `features` {PLAIN_IN_VAIN}",
    ),
    "outside of a plain contract": (
        {"outside": {"event=tail"}}, f"'event=tail' {BEYOND_IN_VAIN}",
    ),
    "topic outside of a plain contract": (
        {"outside": {"launch"}, "features": {"event"}}, f"'launch' {BEYOND_IN_VAIN}",
    ),
    "right and refused": (
        {"right": {"event=tail"}, "refused": {"event=tail"}},
        "'event=tail' is in `right` and in `refused`: take it out of one of them",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_name_that_means_nothing_is_refused(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_names(Capabilities(**fields), subject="mine")
    assert str(caught.value) == f"contract of subject 'mine': {message}"


@pytest.mark.parametrize(
    "capabilities",
    [
        PLAIN_CONTRACT,
        EVERYTHING,
        Capabilities(features={"event"}, outside={"event=tail", "ranks=12"}),  # type: ignore[arg-type]
        Capabilities(right={"used=never"}, refused={"used", "listed"}),  # type: ignore[arg-type]
        Capabilities(features={"dtype=float64"}, outside={"dtype", "dtype=float16"}),  # type: ignore[arg-type]
    ],
)
def test_names_with_a_meaning_pass(capabilities: Capabilities) -> None:
    check_names(capabilities, subject="mine")


def test_a_contract_that_leaves_no_scenario_is_refused() -> None:
    capabilities = Capabilities(outside={"mesh=1 axis", "mesh=2 axes"})  # type: ignore[arg-type]
    with pytest.raises(
        UsageError, match=r"^expected a contract that leaves some 'ranks'"
    ):
        check_names(capabilities, subject="mine")


def test_any_collection_of_features_becomes_a_set() -> None:
    capabilities = Capabilities(outside=["dtype=float16"], features=("event",))  # type: ignore[arg-type]
    assert capabilities.outside == frozenset({"dtype=float16"})
    assert hash(capabilities) == hash(
        Capabilities(
            outside=frozenset({"dtype=float16"}), features=frozenset({"event"})
        )
    )


def test_text_is_no_set_of_features() -> None:
    with pytest.raises(UsageError) as caught:
        Capabilities(outside="dtype=float16")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "expected `outside` of a contract as a set of features, got 'dtype=float16'; try "
        "outside={'dtype=float16'}"
    )


@pytest.mark.parametrize("names", [[5], [["event"]]])
def test_features_that_are_no_set_of_names_are_refused(names: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Capabilities(outside=names)
    assert str(caught.value) == (
        "expected `outside` of a contract as a set of features, such as 'event=tail', "
        f"got {names!r}"
    )
