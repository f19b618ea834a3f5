"""Cases of the bank as the comparison plays them."""

from collections.abc import Callable, Iterator

import pytest

from studies.comparison.cases import Case, case_of
from studies.comparison.rigs import Rigs
from syncverify.bugbank.catalogue import entry_of


@pytest.fixture(scope="session")
def rigs() -> Iterator[Rigs]:
    with Rigs() as opened:
        yield opened


@pytest.fixture
def case() -> Callable[[str], Case]:
    def find(entry_id: str) -> Case:
        found = case_of(entry_of(entry_id))
        assert found is not None
        return found

    return find
