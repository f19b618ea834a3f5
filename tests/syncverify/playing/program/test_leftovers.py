"""What a run leaves in the process, and which code a backward calls."""

import cProfile
import gc
import random
from collections.abc import Iterator

import pytest
import torch

from syncverify.playing.program.leftovers import calls_of_backward, drop_what_is_undone
from syncverify.sim.process_wide.settings import ProcessSettings, restored_settings
from syncverify.trace.run import Leftovers, RankRun
from syncverify.trace.source_lines import shown_path


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with restored_settings():
        yield


def test_what_another_rank_undoes_is_not_left_behind() -> None:
    """Ranks are threads: one looks at the process while another one is in a block."""
    before = ProcessSettings()
    with restored_settings():
        gc.disable()
        left = Leftovers({}, (), (), settings=before.changed())
        assert len(left.settings) == 1
        run, unfinished = RankRun(leftovers=left), RankRun()
        drop_what_is_undone([run, unfinished], before)
        assert run.leftovers == left
    drop_what_is_undone([run, unfinished], before)
    assert run.leftovers == Leftovers({}, (), ())
    assert unfinished.leftovers is None


def test_what_no_other_rank_can_undo_stays_left_behind() -> None:
    before = ProcessSettings()
    with restored_settings():
        torch.set_default_dtype(torch.float64)
        random.seed(7)
        left = Leftovers(
            {},
            (),
            (),
            thread_settings=before.rank_changed(),
            reseeded=before.reseeded(),
        )
    run = RankRun(leftovers=left)
    drop_what_is_undone([run], before)
    assert run.leftovers == left


class InACycle:
    """Garbage that only the collector frees, and that runs code of this file then."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        self.is_freed = True


@pytest.fixture
def _collecting_all_the_time() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_collecting_all_the_time")
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


@pytest.mark.usefixtures("_collecting_all_the_time")
def test_a_profiler_of_the_user_goes_on() -> None:
    weight = torch.ones(3, requires_grad=True)
    profiler = cProfile.Profile()
    with profiler:
        assert calls_of_backward(weight.sum()) == ()
        InACycle()
    assert InACycle.__init__.__code__ in [each.code for each in profiler.getstats()]
