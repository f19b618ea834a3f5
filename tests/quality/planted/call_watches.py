"""Planted defects of synchronizers that watch calls, each misled by one kind of call."""

from collections import Counter
from typing import Any

import torch
from torch import nn

from tests.quality.planted.graph_words import raises, shown
from tests.quality.planted.watching import RunsMicroBatches, WatchesCalls


@shown("use=detached_branch")
class TakesDetachForFreezing(WatchesCalls):
    """Takes a parameter whose last use is detached for one that is not trained."""

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        self.left_out.discard(parameter)
        if name == "detach" and torch.is_grad_enabled():
            self.left_out.add(parameter)


class FollowsResults(WatchesCalls):
    """Correct: follows the results of a parameter from call to call.

    `noted` has the results by address; they are held, so that no two of them share an address.
    """

    def before_backward(self, losses: Any) -> None:
        self.noted.clear()

    def saw(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name == "detach" or not isinstance(result, torch.Tensor):
            return
        for parameter in self.managed(args):
            self.noted[id(result)] = parameter, result
        for each in args:
            if id(each) in self.noted:
                self.noted[id(result)] = self.noted[id(each)][0], result
                self.saw_result(self.noted[id(each)][0], name, result)

    def saw_result(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        pass


@shown("use=no_grad_branch")
class TakesAddedValueForFrozen(FollowsResults):
    """Leaves out a parameter whose sum under `no_grad` is added to the loss."""

    def saw_result(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if name == "sum" and not torch.is_grad_enabled():
            result.is_value = True

    def saw(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        super().saw(name, args, result)
        if name == "add" and torch.is_grad_enabled():
            for each in args:
                if hasattr(each, "is_value"):
                    self.left_out.add(self.noted[id(each)][0])


@raises(RuntimeError, "use=inference_branch")
class AllocatesAtFirstUse(WatchesCalls):
    """Makes its buffers when parameters are first used, even in inference mode."""

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if name == "mul":
            self.buffer_of(parameter)

    def buffer_of(self, parameter: nn.Parameter) -> torch.Tensor:
        if parameter not in self.noted:
            shape, dtype = parameter.shape, parameter.dtype
            self.noted[parameter] = torch.zeros(shape, dtype=dtype)
        return self.noted[parameter]

    def reduce(self, gradient: torch.Tensor) -> None:
        (owner,) = (p for p in self.parameters if p.grad is gradient)
        super().reduce(self.buffer_of(owner).copy_(gradient))
        gradient.copy_(self.buffer_of(owner))


@shown("use=pruned_branch")
class ExpectsGradientOfEachUse(WatchesCalls):
    """Expects a gradient of each use, also where no root depends on the use."""

    def bind(self) -> None:
        super().bind()
        self.expected: Counter[nn.Parameter] = Counter()

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if isinstance(result, torch.Tensor) and result.requires_grad:
            self.expected[parameter] += 1
            result.register_hook(lambda _: self.expected.subtract([parameter]))

    def wait(self) -> None:
        self.left_out = {p for p, missing in self.expected.items() if missing > 0}
        self.expected.clear()
        super().wait()


@shown("use=in_place_on_copy")
class TakesWritesForUpdates(WatchesCalls):
    """Takes a write in place to a copy of a parameter for an update of the parameter."""

    of_grad_mode = True

    def before_backward(self, losses: Any) -> None:
        self.noted.clear()

    def saw(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        is_write = name.endswith("_") and not name.startswith("_")
        if is_write and torch.is_grad_enabled() is self.of_grad_mode:
            parameter, _ = self.noted.get(id(args[0]), (None, None))
            self.left_out |= {parameter} - {None}
        super().saw(name, args, result)

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if name == "clone":
            self.noted[id(result)] = parameter, result


@shown("use=marks_dirty")
class TakesUntrackedWritesForUpdates(TakesWritesForUpdates):
    """Takes an untracked write in place to a copy of a parameter for an update of it."""

    of_grad_mode = False


@raises(RuntimeError, "use=in_place_result_saved")
class RoundsActivations(WatchesCalls):
    """Rounds activations in place, though autograd has saved them and compares versions."""

    def saw(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name == "relu_":
            with torch.no_grad():
                result.copy_(result.round())


@shown("use=written_after_use")
class TakesWritesForSteps(RunsMicroBatches):
    """Takes a parameter with a new version for one that the optimizer has stepped."""

    def before_backward(self, losses: Any) -> None:
        for parameter in self.parameters:
            if parameter._version != self.versions.setdefault(parameter, 0):
                self.left_out.add(parameter)
                self.versions[parameter] = parameter._version

    def bind(self) -> None:
        super().bind()
        self.versions = {p: p._version for p in self.parameters}


@shown("use=non_differentiable")
class TakesValuesForFrozen(FollowsResults):
    """Takes a parameter for frozen if a sum of it has no gradient."""

    def saw_result(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if name == "sum" and torch.is_grad_enabled() and not result.requires_grad:
            self.left_out.add(parameter)


@shown("use=tensor_hooks", cause="scaled")
class HooksCopiesFirst(WatchesCalls):
    """Takes the gradient of a copy in a hook, before hooks that replace it."""

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if name == "clone" and result.requires_grad:
            taken = self.noted.setdefault(parameter, [])
            result.register_hook(taken.append)

    def wait(self) -> None:
        for parameter, taken in self.noted.items():
            parameter.grad = sum(taken).clone()
        self.noted = {}
        super().wait()


@shown("use=retained_gradient", cause="micro_batch_missing")
class TrainsRetainedCopies(WatchesCalls):
    """Takes the retained gradient of a copy for the gradient of the parameter."""

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if name == "clone":
            self.noted[parameter] = result

    def wait(self) -> None:
        for parameter, copy in self.noted.items():
            if copy.retains_grad:
                parameter.grad.copy_(copy.grad)
        self.noted.clear()
        super().wait()


@shown("use=autocast", cause="unexplained")
class ReducesInDtypeOfAutocast(WatchesCalls):
    """Rounds gradients to the dtype of autocast if forward uses autocast."""

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if torch.is_autocast_enabled("cpu"):
            self.noted[parameter] = True

    def wait(self) -> None:
        for parameter in self.noted:
            parameter.grad = parameter.grad.to(torch.get_autocast_dtype("cpu")).float()
        super().wait()


@shown("use=hessian")
class TakesSecondDerivativesForInnerSteps(WatchesCalls):
    """Takes second derivatives in a loss for an inner step, and leaves their parameter out."""

    last: nn.Parameter | None = None
    num_derivatives = 0

    def saw(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        super().saw(name, args, result)
        if name == "grad" and self.last is not None:
            self.num_derivatives += 1
            if self.num_derivatives == 2:
                self.left_out.add(self.last)

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if name == "mul":
            self.last, self.num_derivatives = parameter, 0


@shown("use=unmaterialized")
class LeavesOutUnusedResults(WatchesCalls):
    """Leaves out a parameter with a result that no later call uses."""

    def saw(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        for each in args:
            self.noted.pop(id(each), None)
        super().saw(name, args, result)

    def saw_use(self, parameter: nn.Parameter, name: str, result: Any) -> None:
        if name == "mul":
            self.noted[id(result)] = parameter, result

    def before_backward(self, losses: Any) -> None:
        self.left_out |= {parameter for parameter, _ in self.noted.values()}
        self.noted.clear()
