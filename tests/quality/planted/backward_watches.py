"""Planted defects of synchronizers that watch backwards, each misled by one kind of them."""

import threading
from collections import Counter
from typing import Any

import torch
from torch import nn

from tests.quality.planted.graph_words import (
    BY_HAND,
    FAILED_IN_CODE,
    FUSED,
    raises,
    shown,
)
from tests.quality.planted.graphs import TakesArrivals
from tests.quality.planted.watching import (
    HearsArrivals,
    HearsGradients,
    InterceptsBackward,
    RunsMicroBatches,
    WatchesBackwards,
    roots,
)


@shown("backward=inputs")
class HooksFirstInput(InterceptsBackward):
    """Takes the first of `inputs=` for the only one that gets a gradient."""

    def run(self, loss: torch.Tensor, **options: Any) -> None:
        _, *others = options["inputs"] or (None,)
        self.left_out |= {*others}
        super().run(loss, **options)


@shown("backward=inputs_in_turn", cause="scaled")
class DropsInputs(InterceptsBackward):
    """Does not hand `inputs=` on, so that each backward brings all gradients."""

    def run(self, loss: torch.Tensor, **options: Any) -> None:
        options["inputs"] = None
        super().run(loss, **options)


# The subject has only hooks of `register_hook`, and sends nothing: they are the likely cause.
@shown("backward=several_roots", cause="hook_too_early")
class ArmedByCalls(HearsArrivals, InterceptsBackward):
    """Leaves out gradients that come before a call on a loss; several roots need no such call."""

    def before_backward(self, losses: Any) -> None:
        self.is_armed = False
        self.thread = threading.get_ident()

    is_armed, thread = True, 0

    def arrived(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        if not self.is_armed and threading.get_ident() == self.thread:
            self.left_out.add(parameter)

    def run(self, loss: torch.Tensor, **options: Any) -> None:
        self.is_armed = True
        super().run(loss, **options)

    def saw(self, name: str, args: tuple[Any, ...]) -> None:
        self.is_armed |= name in {"add", "mul", "div", "__truediv__"}


@shown("backward=grad_tensors", cause="scaled")
class UndoesDivision(InterceptsBackward):
    """Takes a division of the loss for a mean over micro-batches, and doubles gradients."""

    is_divided = False

    def saw(self, name: str, args: tuple[Any, ...]) -> None:
        self.is_divided |= name in {"div", "__truediv__"}

    def wait(self) -> None:
        if self.is_divided:
            for parameter in self.parameters:
                parameter.grad.mul_(2)
        super().wait()


@shown("backward=split", beside=[BY_HAND])
class TakesSplitForPipeline(InterceptsBackward):
    """Takes `torch.autograd.grad` of activations for half of a split backward; leaves weights out."""

    def saw(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "grad":
            inputs = args[1:2] if isinstance(args[1], torch.Tensor) else args[1]
            if not any(each is p for each in inputs for p in self.parameters):
                self.left_out = {*self.parameters}


@shown("backward=twice_over_one_graph")
class CountsForwards(RunsMicroBatches):
    """Expects a forward for each backward of the step; one forward may have several."""

    num_forwards = 0

    def before_backward(self, losses: Any) -> None:
        self.num_forwards += 1

    def wait(self) -> None:
        if self.num_forwards == self.required:
            super().wait()

    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_forwards = 0


@shown("backward=loss_scaling", cause="scaled")
class UndoesScaling(RunsMicroBatches):
    """Takes a large gradient of the loss for a scale, and divides, as the user does too."""

    scale = 1.0

    def before_backward(self, losses: Any) -> None:
        for root in roots(losses):
            root.register_hook(self.learn)

    def learn(self, gradient: torch.Tensor) -> None:
        if gradient.item() >= 256:
            self.scale = gradient.item()

    def wait(self) -> None:
        for parameter in self.parameters:
            parameter.grad.div_(self.scale)
        super().wait()


@shown("backward=anomaly", cause="unexplained")
class ReducesEagerlyInDebugMode(HearsGradients):
    """Under anomaly detection each gradient is reduced at once, and in `wait()` again."""

    def accumulated(self, parameter: nn.Parameter) -> None:
        if torch.is_anomaly_enabled():
            self.reduce(parameter.grad)


@shown("backward=on_threads", beside=[BY_HAND])
class KeepsListPerThread(HearsGradients):
    """Lists gradients to reduce by thread, so `wait()` misses those of other threads."""

    def bind(self) -> None:
        super().bind()
        self.local = threading.local()

    def accumulated(self, parameter: nn.Parameter) -> None:
        if not hasattr(self.local, "listed"):
            self.local.listed = {}
        self.local.listed[parameter] = True

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter in getattr(self.local, "listed", {}):
                self.reduce(parameter.grad)
        self.local.listed = {}


@shown("backward=grad_beside", beside=[BY_HAND])
class ExpectsWhatArrived(HearsArrivals, HearsGradients):
    """Takes every call of a tensor hook for an accumulation into `.grad` to come."""

    def bind(self) -> None:
        super().bind()
        self.missing = dict.fromkeys(self.parameters, 0)

    def arrived(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        self.missing[parameter] += 1

    def accumulated(self, parameter: nn.Parameter) -> None:
        self.missing[parameter] -= 1

    def wait(self) -> None:
        if not any(self.missing.values()):
            super().wait()


@shown("backward=hooks_of_others", cause="scaled", beside=[FUSED])
class TakesLastArrival(HearsGradients, TakesArrivals):
    """Sums the last gradient that its own hook saw, which later hooks replace."""

    def bind(self) -> None:
        self.last: dict[nn.Parameter, torch.Tensor] = {}
        super().bind()

    def arrived(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        dtype = parameter.grad_dtype or parameter.dtype
        self.last[parameter] = gradient.detach().to(dtype)

    def accumulated(self, parameter: nn.Parameter) -> None:
        seen, before = self.last[parameter], self.sums.get(parameter)
        self.sums[parameter] = seen.clone() if before is None else before + seen


class StaysInBackward(InterceptsBackward):
    """Never leaves a backward that raises, and takes the next one for a nested one."""

    depth = 0

    def run(self, loss: torch.Tensor, **options: Any) -> None:
        self.depth += 1
        super().run(loss, **options)
        self.depth -= 1

    def wait(self) -> None:
        if self.depth == 0:
            super().wait()


@shown(*FAILED_IN_CODE)
class TidiesUpAfterTheEngineOnly(StaysInBackward):
    """Notes the end of a backward that the engine refused, not of one in which user code raised."""

    def run(self, loss: torch.Tensor, **options: Any) -> None:
        self.depth += 1
        try:
            InterceptsBackward.run(self, loss, **options)
        except RuntimeError:
            self.depth -= 1
            raise
        self.depth -= 1


@shown("backward=failed_over_freed_graph", cause="micro_batch_missing")
class StartsOverAfterFreedGraph(InterceptsBackward):
    """Takes a refused graph for the sign that the step is over, and drops gradients."""

    sign = "backward through the graph a second time"

    def run(self, loss: torch.Tensor, **options: Any) -> None:
        try:
            super().run(loss, **options)
        except RuntimeError as error:
            if self.sign in str(error):
                self.zero_grad()
            raise


@shown("backward=failed_in_place", cause="micro_batch_missing")
class StartsOverAfterWrite(StartsOverAfterFreedGraph):
    """Takes a refused write for one into its own views, and drops gradients."""

    sign = "modified by an inplace operation"


@raises(RuntimeError, "use=jacobian_rows")
class ReadsWhatArrives(HearsArrivals, RunsMicroBatches):
    """Asks each gradient for its address; one of a batch (`vmap`) has none."""

    def arrived(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        self.address = gradient.data_ptr()


@shown("use=double_backward", cause="unexplained", beside=["use=jacobian_rows"])
class TakesDerivativesOfForward(HearsArrivals, RunsMicroBatches):
    """Takes a derivative that a hook sees during forward for the gradient."""

    is_forward = False

    def during_forward(self) -> Any:
        self.is_forward = True
        return super().during_forward()

    def before_backward(self, losses: Any) -> None:
        self.is_forward = False

    def arrived(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        if self.is_forward:
            self.noted.setdefault(parameter, []).append(gradient.detach().clone())

    def wait(self) -> None:
        for parameter, taken in self.noted.items():
            parameter.grad = sum(taken)
        self.noted = {}
        super().wait()


# The recomputation of a reentrant checkpoint brings gradients by a nested backward; that of another one brings none.


class CountsRecomputed(HearsGradients, WatchesBackwards):
    """Correct: counts uses that are computed again, and gradients, of each micro-batch."""

    def bind(self) -> None:
        super().bind()
        self.uses: Counter[nn.Parameter] = Counter()
        self.came: Counter[nn.Parameter] = Counter()
        self.is_last = False

    def run_micro_batch(self, *args: Any, is_last: bool, **kwargs: Any) -> None:
        self.is_last = is_last
        self.uses.clear()
        self.came.clear()
        super().run_micro_batch(*args, is_last=is_last, **kwargs)

    def recomputed(self, parameter: nn.Parameter) -> None:
        self.uses[parameter] += 1

    def accumulated(self, parameter: nn.Parameter) -> None:
        self.came[parameter] += 1


@shown("use=checkpointed")
class ExpectsGradientOfRecomputed(CountsRecomputed):
    """Waits for as many gradients as uses were computed again."""

    def recomputed(self, parameter: nn.Parameter) -> None:
        if torch.is_grad_enabled():
            super().recomputed(parameter)

    def wait(self) -> None:
        late = {p for p in self.parameters if self.came[p] < self.uses[p]}
        self.left_out |= late
        super().wait()


@shown("use=checkpointed_reentrant", cause="unexplained")
class DoneWhenRecomputedCame(CountsRecomputed):
    """Takes a parameter for done after its recomputed uses, though more may follow."""

    def accumulated(self, parameter: nn.Parameter) -> None:
        super().accumulated(parameter)
        is_done = self.uses[parameter] == self.came[parameter]
        if self.is_last and is_done and parameter not in self.left_out:
            self.reduce(parameter.grad)
            self.left_out.add(parameter)


@shown("use=checkpointed_nested")
class TakesInnerForwardForEvaluation(CountsRecomputed):
    """Takes uses under `no_grad` beside others for an evaluation, and leaves out the parameter."""

    def recomputed(self, parameter: nn.Parameter) -> None:
        if torch.is_grad_enabled():
            super().recomputed(parameter)
        else:
            self.noted[parameter] = True

    def wait(self) -> None:
        self.left_out |= {p for p in self.noted if self.uses[p]}
        self.noted.clear()
        super().wait()
