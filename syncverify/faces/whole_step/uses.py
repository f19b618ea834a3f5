"""The uses of parameters in a forward pass, each with its part of the gradient and its line."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from syncverify.judge.whole_step.mesh_play import Use
from syncverify.sim.device.torch_internals import (
    next_sequence_number,
    sequence_number_of,
)
from syncverify.trace.engine_log import reachable
from syncverify.trace.source_lines import Origin
from syncverify.trace.stacks import calling_line


class ForwardLines(TorchFunctionMode):
    """The lines that make the nodes of autograd, by number; without those of custom functions."""

    def __init__(self) -> None:
        super().__init__()
        self.by_number = dict[int, Origin]()

    @override
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        first = next_sequence_number()
        result = func(*args, **(kwargs or {}))
        if made := range(first, next_sequence_number()):
            self.by_number |= dict.fromkeys(made, calling_line())
        return result


@contextmanager
def noted_uses(
    loss: torch.Tensor, parameters: Mapping[str, torch.Tensor], lines: ForwardLines
) -> Iterator[dict[str, Sequence[Use]]]:
    """Note uses by name in a backward pass within a block, in the order of the forward.

    A view that several layers share is one use.
    """
    trained = {name: each for name, each in parameters.items() if each.requires_grad}
    nodes = {name: get_gradient_edge(each).node for name, each in trained.items()}
    # By the number of the node that uses the parameter, and the index of its input.
    noted = {node: dict[tuple[int, int], Use]() for node in nodes.values()}

    def note(user: Any, gradients: tuple[torch.Tensor | None, ...], _: object) -> None:
        number = sequence_number_of(user)
        for index, (node, _) in enumerate(user.next_functions):
            if node in noted and (part := gradients[index]) is not None:
                line = lines.by_number.get(number)
                noted[node][number, index] = Use(part.clone(), line)

    found = dict[str, Sequence[Use]]()
    with ExitStack() as stack:
        for user in reachable([loss.grad_fn], sys.maxsize):
            if any(node in noted for node, _ in user.next_functions):
                hook = user.register_hook(functools.partial(note, user))
                stack.callback(hook.remove)
        yield found
    for name, node in nodes.items():
        found[name] = [use for _, use in sorted(noted[node].items())]
