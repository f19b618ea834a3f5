"""A contract file is read back as it was written, and its mistakes are named."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncverify.errors import UsageError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contract_file import contract_of, contract_text, read_contract
from syncverify.scenario.feature_table import OPTIONAL

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


def test_a_key_that_is_missing_leaves_the_field_as_the_subject_has_it(
    tmp_path: Path,
) -> None:
    (file := tmp_path / "contract.toml").write_text('reduction = "mean"\n')
    read = read_contract(file, OWN)
    assert (read.reduction, read.varying_accumulations) == ("mean", True)
    assert read.features == {"event"}


def test_features_of_a_file_replace_those_of_the_subject(tmp_path: Path) -> None:
    (file := tmp_path / "contract.toml").write_text('right = ["use=twice"]\n')
    read = read_contract(file, OWN)
    assert (read.features, read.right) == (frozenset(), {"use=twice"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rigth = []", "unknown key 'rigth'; the nearest key is 'right'"),
        (
            "right = 'event'",
            "expected right as a list of features such as 'event=tail'",
        ),
        (
            "reduction = 'max'",
            "expected `reduction` of a contract as 'sum' or 'mean', got 'max'",
        ),
        (
            "layers = 'a:B'",
            "expected layers as a list of 'module:attribute', got 'a:B'",
        ),
        ("scalars = 1", "expected `scalars` of a contract as True or False, got 1"),
        (
            "layers = ['a']",
            "expected each of `layers` of a contract as 'module:attribute'",
        ),
        ("right = [", "is no TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (file := tmp_path / "contract.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_contract(file, OWN)
    assert complaint in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_contract(tmp_path / "contract.toml", OWN)
