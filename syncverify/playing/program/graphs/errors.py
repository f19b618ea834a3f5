"""Backwards that raise: operators, each in another place of the engine, and planned ones.

An operator takes a term of a loss and returns a term of the same value. Its backward raises.
Terms that were made after it have their gradients by then, which stay in `.grad`; terms that
were made before never get them. The next backward is a good one, and must be right.
"""

from collections.abc import Callable
from typing import Final, NoReturn

import torch

from syncverify.errors import SyncverifyError
from syncverify.playing.program.graphs.custom_function import running_in_backward
from syncverify.playing.program.graphs.losses import Losses


class FailingOperatorError(Exception):
    """Raised by an operator of this module, and by no subject."""


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
    return running_in_backward(term, _raise)


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

    def fail() -> None:
        in_function(torch.ones((), requires_grad=True)).backward()

    return running_in_backward(term, fail)


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
    raise FailingOperatorError("planned: this backward raises")


class InjectedError(SyncverifyError):
    """The event `raise_in_backward` makes this backward fail.

    A `SyncverifyError`, so that the rank program tells it from an exception of the subject.
    """


def failing_term(device: torch.device) -> torch.Tensor:
    """Return a term of a loss, with value 0, that raises `InjectedError` in backward.

    The engine runs the backward of the latest forward operator first. When the error comes,
    terms that were computed after this term have their gradients; terms that were computed
    before never get them.
    """
    return running_in_backward(idle_term(device), _fail)


def idle_term(device: torch.device) -> torch.Tensor:
    """Return a term of a loss, with value 0, that needs a gradient and uses no parameter."""
    return torch.zeros((), device=device, requires_grad=True)


def _fail() -> NoReturn:
    raise InjectedError("the scenario wants this backward to fail")
