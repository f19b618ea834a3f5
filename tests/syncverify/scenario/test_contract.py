"""A contract: file, name in a verdict, and names of features."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncverify.errors import UsageError
from syncverify.scenario.contract import EVERYTHING, PLAIN_CONTRACT, Capabilities
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.features import without_clear_errors
from syncverify.scenario.names import check_names
from syncverify.subjects.contract_choice import (
    contract_of,
    contract_text,
    read_contract,
)

FEATURES = sorted(map(str, OPTIONAL))
OWN = Capabilities(varying_accumulations=True, features=frozenset({"event"}))

contracts = st.builds(
    Capabilities,
    reduction=st.sampled_from(["sum", "mean"]),
    scalars=st.booleans(),
    device=st.sampled_from(["cpu", "cuda"]),
    layers=st.sampled_from([(), ("own.layers:One", "own:Two")]),
    right=st.frozensets(st.sampled_from(FEATURES), max_size=4),
    refused=st.frozensets(st.sampled_from(FEATURES), max_size=4),
    outside=st.frozensets(st.sampled_from(["dtype=float16", "use=masked"])),
)


@given(contracts, st.text(alphabet="ab#\n\"'"))
def test_a_written_contract_is_read_back(contract: Capabilities, comment: str) -> None:
    text = contract_text(contract, comments={"": comment, "right": comment})
    read = contract_of(tomllib.loads(text), Capabilities(), place="text")
    assert read == contract


def test_a_file_changes_the_fields_that_it_names(tmp_path: Path) -> None:
    """Its features replace those of the subject."""
    (file := tmp_path / "contract.toml").write_text('reduction = "mean"\n')
    read = read_contract(file, OWN)
    assert (read.reduction, read.varying_accumulations) == ("mean", True)
    assert read.features == {"event"}
    file.write_text('right = ["use=twice"]\n')
    read = read_contract(file, OWN)
    assert (read.features, read.right) == (frozenset(), {"use=twice"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rigth = []", "unknown key 'rigth'; the nearest key is 'right'"),
        ("right = 'event'", "expected right as a list of features such as 'event=tail'"),
        ("reduction = 'max'",
            "expected `reduction` of a contract as 'sum' or 'mean', got 'max'"),
        ("layers = ['a']", "expected each of `layers` of a contract as 'module:attribute'"),
        ("right = [", "is no TOML"),
        (None, "cannot be read"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(tmp_path: Path, text: str | None, complaint: str) -> None:
    file = tmp_path / "contract.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_contract(file, OWN)
    assert complaint in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("contract", "words"),
    [
        (Capabilities(), "the plain contract"),
        (
            Capabilities(tensors="local", right=frozenset({"event=wait_twice"})),
            "the plain contract for sums of ordinary tensors and 1 of ",
        ),
    ],
)
def test_a_contract_is_named_by_what_it_reduces(
    contract: Capabilities, words: str
) -> None:
    assert contract.in_words().startswith(words)


@pytest.mark.parametrize(
    ("layers", "got"), [("module:Layer", "'module:Layer'"), ((int,), "<class 'int'>")]
)
def test_layers_that_are_no_paths_are_refused(layers: Any, got: str) -> None:
    with pytest.raises(UsageError, match=f"'module:attribute'.*got {got}$"):
        Capabilities(layers=layers)


def test_features_that_may_be_refused_are_left_out_unless_they_are_promised() -> None:
    strict = without_clear_errors(EVERYTHING)
    assert not strict.covers("listed", "twice")
    assert not strict.covers("event", "tail")
    assert strict.covers("event", "rebind")
    promised = frozenset({"listed=twice", "event"})
    strict = without_clear_errors(
        Capabilities(features=EVERYTHING.features, right=promised)
    )
    assert strict.covers("listed", "twice")
    assert strict.covers("event", "tail")
    assert not strict.covers("used", "never")


BEYOND_IN_VAIN = (
    "in `outside` has no effect: features beyond plain training steps are outside unless "
    "`features`, `right` or `refused` names them; take it out"
)
PLAIN_IN_VAIN = (
    "has no effect: it is a value of plain training steps, which every contract promises "
    "unless `outside` or `refused` names them; take it out"
)
REFUSED: dict[str, tuple[dict[str, set[str]], str]] = {
    "slip in a value": ({"features": {"event=tial"}},
        ("unknown feature 'event=tial' in `features`, expected `topic` or `topic=value`; "
        "the nearest is 'event=tail'")),
    "topic of plain values alone": ({"outside": {"buckets"}},
        ("unknown feature 'buckets' in `outside`, expected `topic` or `topic=value`; the "
        "nearest is 'buckets=3 groups'")),
    "more ranks than Python reads digits": ({"outside": {"ranks=" + "9" * 5000}},
        ("unknown feature 'ranks=" + "9" * 5000 + "' in `outside`, expected `topic` or "
        "`topic=value`; a number of ranks is at least 1, such as 'ranks=4'")),
    "plain value that is promised": ({"features": {"dtype=float16"}},
        f"'dtype=float16' in `features` {PLAIN_IN_VAIN}"),
    "outside of a plain contract": ({"outside": {"event=tail"}},
        f"'event=tail' {BEYOND_IN_VAIN}"),
    "right and refused": ({"right": {"event=tail"}, "refused": {"event=tail"}},
        "'event=tail' is in `right` and in `refused`: take it out of one of them"),
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


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        ("dtype=float16", ", got 'dtype=float16'; try outside={'dtype=float16'}"),
        ([["event"]], ", such as 'event=tail', got [['event']]"),
    ],
)
def test_features_that_are_no_set_of_names_are_refused(names: Any, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Capabilities(outside=names)
    assert str(caught.value) == (
        f"expected `outside` of a contract as a set of features{hint}"
    )
