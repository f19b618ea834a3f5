"""Operators with a backward that raises, each in another place of the engine.

An operator takes a term of a loss and returns a term of the same value. Its backward raises.
Terms that were made after it have their gradients by then, which stay in `.grad`; terms that
were made before never get them. The next backward is a good one, and must be right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from typing_extensions import override

from syncverify.playing.program.graphs.custom_function import call
from syncverify.playing.program.graphs.losses import Losses

_MESSAGE: Final = "planned: this backward raises"


class FailingOperatorError(Exception):
    """Raised by an operator of this module, and by no subject."""

    def __init__(self) -> None:
        super().__init__(_MESSAGE)


class _RaisesInBackward(torch.autograd.Function):
    @override
    @staticmethod
    def forward(_: Any, term: torch.Tensor) -> torch.Tensor:
        return term.clone()

    @override
    @staticmethod
    def backward(_: Any, *gradients: Any) -> Any:
        raise FailingOperatorError


class _BackwardInside(torch.autograd.Function):
    """Runs a nested backward that raises, inside of this backward."""

    @override
    @staticmethod
    def forward(_: Any, term: torch.Tensor) -> torch.Tensor:
        return term.clone()

    @override
    @staticmethod
    def backward(_: Any, *gradients: Any) -> Any:
        with torch.enable_grad():
            leaf = torch.ones((), requires_grad=True)
            in_function(leaf).backward()
        return gradients


def failing_first(
    operator: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[Losses], None]:
    """Make a function of `BACKWARDS` that runs a failing backward, and then a good one."""

    def run(losses: Losses) -> None:
        # The operator is the last node of forward, so it raises before any gradient comes.
        total = losses.total()
        try:
            operator(total).backward()
        except Exception as error:
            if not is_from_failing_operator(error):
                raise
        else:
            raise AssertionError("expected the engine's error, and there was none")
        total.backward()

    run.__name__ = f"failed_{operator.__name__}"
    return run


def in_function(term: torch.Tensor) -> torch.Tensor:
    """Raise in the backward of a custom function."""
    result: torch.Tensor = call(_RaisesInBackward, term)
    return result


def in_tensor_hook(term: torch.Tensor) -> torch.Tensor:
    """Raise in a hook on a tensor."""
    result = term.clone()
    result.register_hook(_raise)
    return result


def in_node_hook(term: torch.Tensor) -> torch.Tensor:
    """Raise in a hook that runs after a node."""
    result = term.clone()
    assert result.grad_fn is not None, "the term needs a gradient"
    result.grad_fn.register_hook(_raise)
    return result


def in_reentrant_backward(term: torch.Tensor) -> torch.Tensor:
    """Raise in a backward that runs inside of another one."""
    result: torch.Tensor = call(_BackwardInside, term)
    return result


def in_place(term: torch.Tensor) -> torch.Tensor:
    """Overwrite a tensor that backward needs, which the engine itself refuses."""
    needed = term.clone()
    squared = needed * needed
    with torch.no_grad():
        needed.add_(0)
    return term + (squared - squared.detach())


def over_freed_graph(term: torch.Tensor) -> torch.Tensor:
    """Use a graph with freed buffers, which the engine itself refuses."""
    copy = term.detach().requires_grad_()
    squared = copy * copy
    squared.backward()
    return term + (squared - squared.detach())


RAISES: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "in_function": in_function,
    "in_tensor_hook": in_tensor_hook,
    "in_node_hook": in_node_hook,
    "in_reentrant_backward": in_reentrant_backward,
    "in_place": in_place,
    "over_freed_graph": over_freed_graph,
}
# Parts of the engine's own messages.
_ENGINE_MESSAGES: Final = (
    "modified by an inplace operation",
    "backward through the graph a second time",
)


def is_from_failing_operator(error: BaseException) -> bool:
    """Tell whether an error comes from an operator of `RAISES`, and not from a subject."""
    if isinstance(error, FailingOperatorError):
        return True
    is_engine_error = type(error) is RuntimeError
    return is_engine_error and any(text in str(error) for text in _ENGINE_MESSAGES)


def _raise(*_: object) -> None:
    raise FailingOperatorError
