"""No process outlives the test that started it."""

from collections.abc import Iterator

import pytest

from tests.syncverify.command.played_commands import end_all


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    end_all()
