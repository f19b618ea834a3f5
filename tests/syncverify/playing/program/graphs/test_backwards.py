"""Each way to run backward accumulates the plain gradient, to the bit, or raises as planned."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from syncverify.playing.program.graphs.backwards import (
    BACKWARDS,
    deep_reentrant,
    on_threads,
    reentrant,
    run_backward,
)
from syncverify.playing.program.graphs.errors import (
    RAISES,
    FailingOperatorError,
    is_from_failing_operator,
)
from syncverify.playing.program.graphs.losses import (
    Losses,
    MarkReady,
    not_told,
    one_thread,
)
from syncverify.playing.program.graphs.uses import USES
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import NEVER_TOGETHER, PLAIN, WORDS
from syncverify.sim.process_wide.settings import no_collection_of_cycles

every_backward = pytest.mark.parametrize(
    "word", [word for word in BACKWARDS if not WORDS["backward"][word].rare]
)


class Model:
    """Three parameters with gradients that are whole numbers, halved or not."""

    def __init__(self) -> None:
        self.parameters = {
            name: nn.Parameter(torch.full((3,), 2.0)) for name in ("a", "b", "c")
        }
        self.constants = {
            name: 2 * (torch.arange(3.0) + 10 * place)
            for place, name in enumerate(self.parameters)
        }

    def losses(self, use: str = PLAIN, mark_ready: MarkReady = not_told) -> Losses:
        terms = {
            name: USES[use](parameter, self.constants[name])
            for name, parameter in self.parameters.items()
        }
        return Losses(terms, self.parameters, one_thread, mark_ready)

    def gradients(self) -> list[list[float]]:
        return [parameter.grad.tolist() for parameter in self.parameters.values()]

    def expected(self, count: int = 1) -> list[list[float]]:
        return [(count * constant).tolist() for constant in self.constants.values()]


def is_right(word: str, model: Model, use: str) -> bool:
    try:
        for _ in range(2):  # the first gradient has nothing to be added to
            run_backward(word, model.losses(use))
    except RuntimeError:
        return False
    gradients = [parameter.grad for parameter in model.parameters.values()]
    return None not in gradients and model.gradients() == model.expected(2)


@every_backward
def test_uses_compose_with_backwards_unless_torch_forbids(word: str) -> None:
    uses = [use for use in USES if not WORDS["use"][use].rare]
    # torch allows two more, but a parameter of one half is in the other half's graph too; and
    # no synchronizer has made a `main_grad` here.
    allowed = {"added_to_another", "fused_main_grad"}
    backward = Feature("backward", word)
    assert {use: is_right(word, Model(), use) for use in uses} == {
        use: use in allowed
        or frozenset({Feature("use", use), backward}) not in NEVER_TOGETHER
        for use in uses
    }


@every_backward
def test_a_backward_keeps_its_graph_alive_by_no_cycle(word: str) -> None:
    """torch refuses to cast a DTensor parameter whose graph is alive."""
    model = Model()
    with no_collection_of_cycles():
        run_backward(word, model.losses())
        counts = [each._use_count() for each in model.parameters.values()]
    assert counts == [1, 1, 1]


every_operator = pytest.mark.parametrize("word", RAISES)


@every_operator
def test_the_value_stays_and_backward_raises(word: str) -> None:
    parameter = torch.full((3,), 2.0, requires_grad=True)
    term = RAISES[word]((parameter * 5).sum())
    assert term.item() == 30
    with pytest.raises((FailingOperatorError, RuntimeError)) as caught:
        term.backward()
    assert is_from_failing_operator(caught.value)


@every_operator
def test_earlier_gradients_stay_accumulated(word: str) -> None:
    early, late = (torch.ones(2, requires_grad=True) for _ in range(2))
    raising = RAISES[word](late.sum())  # made first, so its backward comes last
    with pytest.raises((FailingOperatorError, RuntimeError)):
        (raising + (early * 3).sum()).backward()
    assert early.grad is not None
    assert late.grad is None


@pytest.mark.parametrize(
    "error",
    [RuntimeError("gloo: connection closed"), ValueError("in-place"), KeyError(1)],
)
def test_other_errors_are_not_planned(error: Exception) -> None:
    assert not is_from_failing_operator(error)


@pytest.mark.parametrize("backward", [reentrant, deep_reentrant])
def test_all_nodes_are_on_the_device_of_the_loss(
    monkeypatch: pytest.MonkeyPatch, backward: Any
) -> None:
    """The engine orders the nodes of one device; on another thread the graph is freed early."""
    ones, devices = torch.ones, set[str]()

    def noted(*args: Any, **options: Any) -> torch.Tensor:
        made = ones(*args, **options)
        devices.add(made.device.type)
        return made

    weight = ones(3, device="meta", requires_grad=True)
    losses = Losses({"w": (weight * weight).sum()}, {"w": weight}, one_thread)
    monkeypatch.setattr(torch, "ones", noted)
    backward(losses)
    assert devices == {"meta"}
    assert weight.grad is not None


class Streams:
    """Stands for `torch.cuda`: each thread has a current stream, at first the default one."""

    def __init__(self) -> None:
        self._own = threading.local()

    def current_stream(self, _: object = None) -> str:
        return getattr(self._own, "stream", "default")

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        before = self.current_stream()
        self._own.stream = stream
        yield
        self._own.stream = before


class Term:
    device = torch.device("cuda", 1)

    def __init__(self, streams: Streams, streams_of_calls: list[str]) -> None:
        self._streams, self._streams_of_calls = streams, streams_of_calls

    def backward(self) -> None:
        self._streams_of_calls.append(self._streams.current_stream())


def test_a_backward_on_a_thread_is_on_the_stream_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams, streams_of_calls = Streams(), list[str]()
    monkeypatch.setattr(torch, "get_device_module", lambda _: streams)
    terms: Any = {name: Term(streams, streams_of_calls) for name in ("v", "w")}
    with streams.stream("side"):
        on_threads(Losses(terms, {}, lambda: nullcontext))
    assert streams_of_calls == ["side", "side"]
    assert streams.current_stream() == "default"


def test_a_backward_on_a_cpu_needs_no_stream() -> None:
    leaf = torch.ones(2, requires_grad=True)
    on_threads(Losses({"w": leaf.sum()}, {"w": leaf}, lambda: nullcontext))
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, torch.ones(2))
