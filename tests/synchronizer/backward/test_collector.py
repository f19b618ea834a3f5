"""The hook in C++: its calls of Python, and the results that it must not change.

Compiled once for all processes of a user, which takes 17 s of CPU.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils import cpp_extension

from studies.stand_ins.modes import UsualMode
from syncverify import verify
from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    LateAccumulationError,
    LifecycleError,
    StepFailedError,
    SynchronizerConfig,
)
from syncverify.synchronizer.backward import collector

needs_compiler = pytest.mark.skipif(
    not (shutil.which("c++") and cpp_extension.is_ninja_available()),
    reason="no C++ compiler, or no ninja",
)
CONFIG = SynchronizerConfig(allow_local_only=True, gradient_hook="cpp")


def made(weights: list[nn.Parameter]) -> GradientSynchronizer:
    return GradientSynchronizer([weights], 1, 1, config=CONFIG)


def parameters(count: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(3)) for _ in range(count)]


def backward(weights: list[nn.Parameter]) -> None:
    torch.stack(weights).sum().backward()


def calls_of_python(
    synchronizer: GradientSynchronizer, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    calls: list[int] = []
    sequence = synchronizer._sequence
    assert sequence is not None
    note = sequence.note_accumulation

    def counted(number: int) -> None:
        calls.append(number)
        note(number)

    monkeypatch.setattr(sequence, "note_accumulation", counted)
    return calls


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("set_to_none", [False, True])
def test_python_is_called_twice_for_a_bucket(
    one_rank: None, monkeypatch: pytest.MonkeyPatch, *, set_to_none: bool
) -> None:
    weights = parameters(8)
    with made(weights) as synchronizer:
        for step in range(3):
            calls = calls_of_python(synchronizer, monkeypatch)
            backward(weights)
            synchronizer.wait()
            assert len(calls) == 2, step
            assert [w.grad.tolist() for w in weights if w.grad is not None] == (
                [[1.0] * 3] * 8
            )
            monkeypatch.undo()
            synchronizer.zero_grad(set_to_none=set_to_none)


@pytest.mark.long
@needs_compiler
def test_gradients_that_are_collected_are_counted_before_a_refusal(
    one_rank: None,
) -> None:
    weights = parameters(4)
    synchronizer = made(weights)
    refusals: list[str] = []

    def ask(_: torch.Tensor) -> None:
        with pytest.raises(LifecycleError) as caught:
            synchronizer.set_required_accumulations(2)
        refusals.append(str(caught.value))

    weights[2].register_post_accumulate_grad_hook(ask)
    with synchronizer:
        backward(weights)
        synchronizer.wait()
    assert len(refusals) == 1


@pytest.mark.long
@needs_compiler
def test_a_backward_that_raises_leaves_nothing_for_the_next_step(
    one_rank: None,
) -> None:
    weights = parameters(4)

    def fail(_: torch.Tensor) -> None:
        raise ValueError("planted")

    handle = weights[2].register_post_accumulate_grad_hook(fail)
    with made(weights) as synchronizer:
        with pytest.raises(ValueError, match="planted"):
            backward(weights)
        with pytest.raises(StepFailedError):
            synchronizer.wait()
        handle.remove()
        synchronizer.zero_grad()
        backward(weights)
        synchronizer.wait()
        with pytest.raises(LateAccumulationError):
            backward(weights)
        synchronizer.zero_grad()


@pytest.mark.long
@needs_compiler
def test_a_moved_gradient_is_right_after_set_to_none(one_rank: None) -> None:
    weights = parameters(4)
    with made(weights) as synchronizer:
        for _ in range(2):
            backward(weights)
            synchronizer.wait()
            synchronizer.zero_grad()
        gradient = weights[1].grad
        assert gradient is not None
        gradient.data = gradient.data.clone() - 7
        synchronizer.zero_grad(set_to_none=True)
        backward(weights)
        synchronizer.wait()
        assert [w.grad.tolist() for w in weights if w.grad is not None] == (
            [[1.0] * 3] * 4
        )


class CollectsInCpp(UsualMode):
    """Counts the gradients that a hook in C++ has collected."""

    config = replace(UsualMode.config, gradient_hook="cpp")


@pytest.mark.long(40)
@needs_compiler
def test_the_harness_finds_nothing() -> None:
    verify(CollectsInCpp, backend="sim", ranks=4, examples=15, seed=0)


def test_a_machine_without_a_compiler_is_refused_with_a_remedy(
    one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object, **__: object) -> Callable[..., object]:
        raise RuntimeError("Ninja is required to load C++ extensions\n...")

    monkeypatch.setattr(cpp_extension, "load", load)
    monkeypatch.setattr(collector, "extension", collector.extension.__wrapped__)
    with pytest.raises(InvalidArgumentError) as caught:
        made(parameters(1)).bind()
    assert str(caught.value).splitlines() == [
        "the hook in C++ cannot be built",
        "  expected: a C++ compiler and ninja, for torch.utils.cpp_extension",
        "  got:      Ninja is required to load C++ extensions",
        "  where:    rank 0 of 1",
        '  hint: SynchronizerConfig(gradient_hook="python") needs neither',
    ]


@pytest.mark.long
@needs_compiler
def test_the_lock_of_a_build_that_was_killed_holds_nobody_up() -> None:
    collector.extension()
    (collector.build_folder() / "lock").touch()
    collector.extension.__wrapped__()
