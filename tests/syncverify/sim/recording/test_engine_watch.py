"""The log of a backward pass: its nodes in order, and the hooks of each."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.sim.recording.engine_watch import EngineWatch
from syncverify.sim.recording.raw_accesses import RawPlace
from syncverify.subjects.subject import resolve
from syncverify.trace.engine_log import EnginePass
from syncverify.trace.records import Moment


class Watched:
    """A parameter `p`, a watch, and the recorder behind it with a trace of words."""

    moment = Moment("backward", 0, 0)

    def __init__(self) -> None:
        self.p = torch.ones(2, requires_grad=True)
        self.parameters = {"p": self.p}
        self.trace: list[str] = []
        self.watch = EngineWatch(self)

    def note_place(self) -> RawPlace:
        return RawPlace(len(self.trace), len(self.trace))

    def current_stream(self) -> str:
        return "default"

    def backward(self, loss: torch.Tensor) -> None:
        self.watch.run(loss.backward, [loss.grad_fn])

    def passes(self) -> list[EnginePass]:
        return self.watch.passes()

    def adds(self, word: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            self.trace.append(word)

        return hook


def accumulation(leaf: torch.Tensor) -> Any:
    used = leaf.expand_as(leaf).grad_fn
    return used.next_functions[0][0]


def hooks(of_pass: EnginePass) -> list[tuple[str, str, list[int]]]:
    """List each hook with the node that was running, or "" for none, and its records."""
    return [
        (
            step.hook,
            "" if step.node is None else of_pass.nodes[step.node].name,
            [*range(step.start, step.end)],
        )
        for step in of_pass.steps
        if step.hook
    ]


def test_each_kind_of_hook_is_named_with_what_was_recorded_in_it() -> None:
    watched = Watched()
    leaf = watched.p
    node = accumulation(leaf)
    leaf.register_hook(watched.adds("tensor"))
    leaf.register_post_accumulate_grad_hook(watched.adds("accumulated"))
    node.register_prehook(watched.adds("before"))
    node.register_hook(watched.adds("after"))
    saved = torch.autograd.graph.saved_tensors_hooks(
        lambda kept: kept, lambda kept: (watched.trace.append("unpacked"), kept)[1]
    )
    with saved:
        loss = (leaf * leaf.detach()).sum()
    callback: Any = torch.autograd.Variable._execution_engine
    leaf.register_hook(lambda _: callback.queue_callback(watched.adds("last")))
    watched.backward(loss)
    (logged,) = watched.passes()
    assert watched.trace == [
        "unpacked",
        "tensor",
        "before",
        "accumulated",
        "after",
        "last",
    ]
    assert hooks(logged) == [
        ("saved-tensor hook", "MulBackward0", [0]),
        ("tensor hook", "AccumulateGrad", [1]),
        ("tensor hook", "AccumulateGrad", []),
        ("node pre-hook", "AccumulateGrad", [2]),
        ("post-accumulate hook", "AccumulateGrad", [3]),
        ("node hook", "AccumulateGrad", [4]),
        ("final callback", "", [5]),
    ]
    (first, *_) = (step for step in logged.steps if step.hook)
    assert str(first.source).startswith(
        "tests/syncverify/sim/recording/test_engine_watch.py:"
    )


def test_error_of_a_hook_ends_the_log_and_gives_the_profiler_back() -> None:
    watched = Watched()

    def fail(_: object) -> None:
        watched.trace.append("failing")
        raise ValueError("on purpose")

    watched.p.register_post_accumulate_grad_hook(fail)
    with pytest.raises(ValueError, match="on purpose"):
        watched.backward(watched.p.sum())
    assert sys.getprofile() is None
    (logged,) = watched.passes()
    assert hooks(logged) == [("post-accumulate hook", "AccumulateGrad", [0])]


def test_profiler_of_another_is_left_alone() -> None:
    watched = Watched()
    called = list[str]()

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    watched.p.register_hook(watched.adds("hook"))
    sys.setprofile(note)
    try:
        watched.backward(watched.p.sum())
    finally:
        sys.setprofile(None)
    assert "hook" in called
    assert watched.passes() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backward"),
    [("examples.reduces_too_often:ReducesTooOften", "reentrant"), ("ddp", "reentrant")],
)
def test_watch_does_not_change_the_trace(name: str, backward: str) -> None:
    scenario = Scenario(
        MeshSpec((2,), ("dp",)),
        (ParameterSpec("p", (2,), ("R",)), ParameterSpec("q", (), ("R",))),
        (2,),
        2**20,
        backward=backward,
    )
    subject = resolve(name)
    plain = SimBackend().run(scenario, subject)
    watched = SimBackend(watches_engine=True).run(scenario, subject)
    assert [each.trace for each in watched.ranks] == [
        each.trace for each in plain.ranks
    ]
    assert not any(each.engine for each in plain.ranks)
    assert all(each.engine for each in watched.ranks)
    again = SimBackend(watches_engine=True).run(scenario, subject)
    assert [each.engine for each in again.ranks] == [
        each.engine for each in watched.ranks
    ]
