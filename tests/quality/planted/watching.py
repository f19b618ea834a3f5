"""A correct synchronizer that runs forward and backward itself, and may look at both.

DDP walks the graph that forward returns, ColossalAI's Gemini watches the calls that take a
parameter, FSDP hooks the tensors that forward returns. Each defect misreads the watched
thing, and mostly leaves parameters out of `wait()`.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads


class HearsGradients(PlainGrads):
    """Correct: hears of each gradient that has been accumulated, and ignores it."""

    def bind(self) -> None:
        super().bind()
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.accumulated)
            self.handles.append(hook)

    def accumulated(self, parameter: nn.Parameter) -> None:
        pass


class HearsArrivals(PlainGrads):
    """Correct: hears of each gradient that arrives at a parameter, and ignores it."""

    def bind(self) -> None:
        super().bind()
        for parameter in self.parameters:
            hook = functools.partial(self.arrived, parameter)
            self.handles.append(parameter.register_hook(hook))

    def arrived(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        pass


class RunsMicroBatches(PlainGrads):
    """Correct: as DDP it knows plain tensors, and runs whole micro-batches."""

    capabilities = Capabilities(
        tensors="local",
        varying_accumulations=True,
        features=frozenset({"use", "backward"}),
    )

    def bind(self) -> None:
        super().bind()
        self.left_out: set[nn.Parameter] = set()
        self.noted: dict[Any, Any] = {}

    def run_micro_batch(
        self,
        compute_loss: Callable[[], Any],
        *,
        is_last: bool,
        run_backward: Callable[[Any], None] = torch.Tensor.backward,
    ) -> None:
        with self.during_forward():
            losses = compute_loss()
        self.before_backward(losses)
        with self.during_backward():
            run_backward(losses)

    def during_forward(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def before_backward(self, losses: Any) -> None:
        pass

    def during_backward(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def reduce(self, gradient: torch.Tensor) -> None:
        dist.all_reduce(gradient.detach())

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None and parameter not in self.left_out:
                self.reduce(parameter.grad)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.left_out = set()


class Calls(TorchFunctionMode):
    """Hands each call to torch inside a block to a function that makes the call."""

    def __init__(self, make: Callable[..., Any]) -> None:
        super().__init__()
        self.make = make

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.make(function, *args, **(kwargs or {}))


class WatchesCalls(RunsMicroBatches):
    """Correct: hears of each call of a forward, and does nothing about it."""

    def during_forward(self) -> AbstractContextManager[Any]:
        return Calls(self.make)

    def make(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        self.saw(function.__name__, args, result)
        return result

    def saw(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        for parameter in self.managed(args):
            self.saw_use(parameter, name, result)

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        pass

    def managed(self, args: tuple[Any, ...]) -> list[nn.Parameter]:
        """List the parameters among the arguments of a call."""
        own = {id(parameter): parameter for parameter in self.parameters}
        return [own[id(each)] for each in args if id(each) in own]


class InterceptsBackward(RunsMicroBatches):
    """Correct: stands between the caller and `Tensor.backward()`, and hands on all of it."""

    def during_backward(self) -> AbstractContextManager[Any]:
        return Calls(self.make)

    def make(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if function is torch.Tensor.backward:
            return self.run(*args, **kwargs)
        self.saw(function.__name__, args)
        return function(*args, **kwargs)

    def run(self, loss: torch.Tensor, **options: Any) -> None:
        loss.backward(**options)

    def saw(self, name: str, args: tuple[Any, ...]) -> None:
        pass


class Operators(TorchDispatchMode):
    """Reports each operator of a block to a function."""

    def __init__(self, saw: Callable[[tuple[Any, ...]], None]) -> None:
        super().__init__()
        self.saw = saw

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.saw(args)
        return function(*args, **(kwargs or {}))


class WatchesBackwards(WatchesCalls):
    """Correct: is notified of uses of parameters in backward, and ignores them."""

    def during_forward(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def during_backward(self) -> AbstractContextManager[Any]:
        return Operators(self.operated)

    def operated(self, args: tuple[Any, ...]) -> None:
        for parameter in self.managed(args):
            self.recomputed(parameter)

    def recomputed(self, parameter: nn.Parameter) -> None:
        pass


class WalksGraph(RunsMicroBatches):
    """Correct: walks the graph of each micro-batch, and does nothing about it."""

    def before_backward(self, losses: Any) -> None:
        for consumer, _, parameter in self.consumers(losses):
            self.found(parameter, consumer)

    def found(self, parameter: nn.Parameter, consumer: Any) -> None:
        pass

    def consumers(self, losses: Any) -> Iterator[tuple[Any, int, nn.Parameter]]:
        """Yield each node that passes a gradient to a parameter, the input, and the parameter."""
        for node in nodes(losses):
            for place, (following, _) in enumerate(node.next_functions):
                variable = getattr(following, "variable", None)
                if any(variable is each for each in self.parameters):
                    yield node, place, variable

    def behind_each(self, losses: Any, name: str) -> Iterator[tuple[Any, nn.Parameter]]:
        """Yield each node of a name, with each parameter that it passes gradients to."""
        for node in nodes(losses):
            if node.name() == name:
                for parameter in self.behind(node):
                    yield node, parameter

    def behind(self, node: Any) -> list[nn.Parameter]:
        """List the parameters that a node passes gradients to."""
        waiting, found = [node], []
        while waiting:
            following = waiting.pop()
            variable = getattr(following, "variable", None)
            found += [each for each in self.parameters if each is variable]
            waiting += [
                each for each, _ in following.next_functions if each is not None
            ]
        return found


def roots(losses: Any) -> list[torch.Tensor]:
    """List the losses of a micro-batch."""
    return [losses] if isinstance(losses, torch.Tensor) else [*losses.values()]


def nodes(losses: Any) -> Iterator[Any]:
    """Yield each node of a graph once, from the losses on."""
    waiting, seen = [root.grad_fn for root in roots(losses)], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += [following for following, _ in node.next_functions]
