"""Functions that a backward calls are those of its graph alone."""

import cProfile
import gc
from collections.abc import Iterator

import pytest
import torch

from syncverify.program.leftovers import calls_of_backward
from syncverify.trace.source_lines import shown_path


class InACycle:
    """Garbage that only the collector frees, and that runs code of this file then."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        self.is_freed = True


@pytest.fixture(autouse=True)
def _collecting_all_the_time() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


def test_a_finalizer_that_the_collector_calls_is_none_of_them() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()
    gc.disable()
    InACycle()
    gc.enable()
    assert calls_of_backward(loss) == ()


def test_a_hook_of_a_node_is_one_of_them() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()
    loss.grad_fn.register_prehook(lambda gradients: None)
    (line,) = calls_of_backward(loss)
    assert line.path == shown_path(__file__)


def test_a_profiler_of_the_user_goes_on() -> None:
    weight = torch.ones(3, requires_grad=True)
    profiler = cProfile.Profile()
    with profiler:
        assert calls_of_backward(weight.sum()) == ()
        InACycle()
    assert InACycle.__init__.__code__ in [each.code for each in profiler.getstats()]
