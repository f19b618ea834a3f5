"""A contract names itself in a verdict, and refuses layers that are no paths."""

from typing import Any

import pytest

from syncverify.errors import UsageError
from syncverify.scenario.contract import Capabilities


@pytest.mark.parametrize(
    ("contract", "words"),
    [
        (Capabilities(), "the plain contract"),
        (
            Capabilities(reduction="mean", tensors="local"),
            "the plain contract for means of ordinary tensors",
        ),
    ],
)
def test_a_contract_is_named_by_what_it_reduces(
    contract: Capabilities, words: str
) -> None:
    assert contract.in_words() == words


@pytest.mark.parametrize(
    ("layers", "got"),
    [("module:Layer", "'module:Layer'"), (7, "7"), ((int,), "<class 'int'>")],
)
def test_layers_that_are_no_paths_are_refused(layers: Any, got: str) -> None:
    with pytest.raises(UsageError, match=f"'module:attribute'.*got {got}$"):
        Capabilities(layers=layers)


def test_features_beyond_are_counted() -> None:
    contract = Capabilities(tensors="local", right=frozenset({"event=wait_twice"}))
    start = "the plain contract for sums of ordinary tensors and 1 of "
    assert contract.in_words().startswith(start)
