"""Each way to run backward accumulates the plain gradient, to the bit."""

import pytest
import torch
from torch import nn

from syncverify.program.cycle_collection import no_collection_of_cycles
from syncverify.program.graphs.backwards import (
    BACKWARDS,
    backwards_per_micro_batch,
    run_backward,
)
from syncverify.program.graphs.losses import (
    Losses,
    MarkReady,
    not_told,
    one_thread,
)
from syncverify.program.graphs.uses import USES
from syncverify.scenario import feature_table
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import NEVER_TOGETHER, PLAIN, WORDS

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
def test_every_parameter_gets_its_gradient_and_keeps_no_hook_and_no_mode(
    word: str,
) -> None:
    model = Model()
    for count in (1, 2):
        run_backward(word, model.losses())
        assert model.gradients() == model.expected(count)
    assert not any(p._backward_hooks for p in model.parameters.values())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters.values())
    assert not torch.is_anomaly_enabled()


@every_backward
def test_one_parameter_alone_will_do(word: str) -> None:
    model = Model()
    whole = model.losses()
    run_backward(word, whole.without({"a", "c"}))
    assert model.parameters["b"].grad.tolist() == model.constants["b"].tolist()
    assert model.parameters["a"].grad is None


@every_backward
def test_terms_without_a_parameter_are_run_plainly(word: str) -> None:
    leaf = torch.ones((), requires_grad=True)
    run_backward(word, Losses({"": leaf * 3}, {}, one_thread))
    assert leaf.grad.item() == 3


@every_backward
def test_accumulations_are_as_many_as_said(word: str) -> None:
    """Count calls of hooks and of `mark_ready`, as a subject would."""
    model = Model()
    calls: list[torch.Tensor] = []
    a = model.parameters["a"]
    a.register_post_accumulate_grad_hook(calls.append)
    run_backward(word, model.losses(mark_ready=lambda *marked: calls.extend(marked)))
    assert sum(each is a for each in calls) == (
        2 if feature_table.BACKWARDS[word].halves else 1
    )
    assert backwards_per_micro_batch(word) == (
        2 if word == "twice_over_one_graph" else 1
    )


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
