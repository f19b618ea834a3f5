"""Ranks over gloo that are threads of this process, and two wrappers of a model."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.conformance.wrappers import Wrapped, wrapped_by
from tests.thread_ranks import groups_by_thread, on_ranks


@pytest.fixture
def play() -> Iterator[Callable[[int, Callable[[int], Any]], list[Any]]]:
    """A function that plays a program on several ranks."""
    with groups_by_thread():
        yield partial(on_ranks, backend="gloo")


@pytest.fixture(params=["synchronizer", "ddp"])
def wrap(request: pytest.FixtureRequest) -> Callable[..., Wrapped]:
    """A function that wraps a model, by our synchronizer and then by DDP."""
    return partial(wrapped_by, request.param)
