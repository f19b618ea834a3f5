"""The gradients that clipping and the optimizer read, as copies.

The only module of this folder that replaces private names of torch. We rely on these facts, and a
test says so: `clip_grad._clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)` scales
gradients in place, `clip_grad_norm_` calls it by its name, and `torch.nn.utils` exports it as
`clip_grads_with_norm_`.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from syncverify.faces.whole_step.graph import (
    GraphFunction,
    Leaves,
    functions_behind,
    lines_noted,
)
from syncverify.judge.whole_step.shards import local_part
from syncverify.trace.dispatch_modes import without_dispatch_modes
from syncverify.trace.source_lines import Origin, SourceLine, lines_among
from syncverify.trace.stacks import calling_line

_rank: Final = threading.local()
# Not options of an update: parameters, ways to compute the same, and the start of a schedule.
_HOW: Final = (
    "params",
    "foreach",
    "fused",
    "capturable",
    "differentiable",
    "initial_lr",
)
_SIMPLE: Final = (bool, int, float, str, tuple, torch.Tensor)


class StepWatch:
    """Copies of the gradients of one step, on one rank.

    Optimizers may update copies of the parameters, or slices, that are tensors of their own. Then the
    gradients of the model count as read when `step()` begins, unless the tensor is a copy of one
    parameter: then its own gradient does. Earlier steps showed which tensors are copies. Optimizers
    may be of no class of torch.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        optimizers: Sequence[Any],
        copies: dict[torch.Tensor, nn.Parameter],
    ) -> None:
        self._parameters = dict.fromkeys(parameters)
        # Gradients before the first clipping, by parameter.
        self.before_clip = dict[nn.Parameter, torch.Tensor]()
        # Gradients of the model when an optimizer with tensors of its own begins its step.
        self.begun = dict[nn.Parameter, torch.Tensor]()
        # Gradients as the optimizer reads them.
        self.read = dict[torch.Tensor, torch.Tensor]()
        # The norm of the last clipping, and whether all calls were given that one.
        self.norm: torch.Tensor | None = None
        self.has_one_norm = True
        self.max_norms = set[float]()  # that the calls of torch's clipping were given
        self.backwards = dict[SourceLine, None]()
        self.functions = list[GraphFunction]()  # nearest to the loss first
        self.leaves = Leaves(self._parameters)
        # Parameters that no optimizer has, as the first backward sees them; no DTensors.
        self.used = dict[nn.Parameter, torch.Tensor]()
        self.optimizers = list[Any]()  # that stepped, one entry a step
        self.options = dict[torch.Tensor, dict[str, object]]()
        # Parameters as the last step of an optimizer left them; no DTensors.
        self.updated = dict[torch.Tensor, torch.Tensor]()
        self.copies = copies
        # Parameters that optimizers with tensors of their own may update from a tensor that is not
        # their gradient.
        self.is_read_elsewhere = dict[torch.Tensor, None]()
        held = {each for optimizer in optimizers for each in parameters_of(optimizer)}
        self._elsewhere = [
            each
            for each in self._parameters
            if each.requires_grad
            if each not in held and not isinstance(each, DTensor)
        ]
        self._others = [e for e in optimizers if not isinstance(e, Optimizer)]
        self._running = list[Any]()

    @property
    def num_steps(self) -> int:
        """Number of steps of the optimizer that made most."""
        return max(Counter(map(id, self.optimizers)).values(), default=0)

    @property
    def clips_parts(self) -> bool:
        """Tell whether parameters are clipped by several norms, or some of them alone."""
        read = {each for each in self.read if each in self._parameters}
        is_of_others = self.before_clip and self.before_clip.keys() != read
        return not self.has_one_norm or bool(is_of_others)

    @property
    def max_norm(self) -> float | None:
        """Return the one largest norm of torch's clipping; None where there are several, or none."""
        is_one = self.has_one_norm and len(self.max_norms) == 1
        return next(iter(self.max_norms)) if is_one else None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the steps of this thread within a block of `watched_steps`."""
        _rank.watch = self
        with ExitStack() as stack:
            for each in self._others:
                stack.enter_context(patch.object(each, "step", self._seen(each)))
            try:
                yield
            finally:
                _rank.watch = None

    def _seen(self, optimizer: Any) -> Callable[..., Any]:
        """Return the step of an optimizer of no class of torch, which is watched."""
        original = optimizer.step

        def step(*args: Any, **kwargs: Any) -> Any:
            self.sees_step(optimizer)
            result = original(*args, **kwargs)
            self.sees_end(optimizer)
            return result

        return step

    def sees_backward(self, line: Origin, functions: list[GraphFunction]) -> None:
        """Note the line that calls backward, its functions, and parameters that another tensor updates."""
        self.backwards |= dict.fromkeys(lines_among([line]))
        self.functions += functions
        with without_dispatch_modes():  # the program does not read it
            for each in self._elsewhere:
                if each not in self.used:
                    self.used[each] = each.detach().clone()

    def sees_clip(
        self, parameters: Iterable[Any], norm: torch.Tensor, max_norm: float
    ) -> None:
        """Copy the gradients that are clipped, their norm, and the largest one."""
        with without_dispatch_modes():  # the program does not read it
            self.max_norms.add(float(max_norm))
        if self.norm is not None:
            # Of a DTensor only a collective knows whether it is equal.
            are_local = not isinstance(self.norm, DTensor) and not isinstance(
                norm, DTensor
            )
            self.has_one_norm &= are_local and bool(torch.equal(self.norm, norm))
        self.norm = norm.detach().clone()
        for parameter in parameters:
            if isinstance(parameter, nn.Parameter) and parameter.grad is not None:
                copy = parameter.grad.detach().clone()
                self.before_clip.setdefault(parameter, copy)

    def sees_step(self, optimizer: Any) -> None:
        """Copy the gradients and the options that the optimizer reads.

        A step may call the step of its base class, which reads the gradients after it.
        """
        if not any(each is optimizer for each in self._running):
            self.optimizers.append(optimizer)
        self._running.append(optimizer)
        with without_dispatch_modes():  # the program does not read it
            self.options |= options_of(optimizer)
            self._find_copies(optimizer)
        self.sees_gradients(optimizer)

    def sees_gradients(self, optimizer: Any) -> None:
        """Copy the gradients that the optimizer reads, or, with tensors of its own, may read."""
        held = dict.fromkeys(parameters_of(optimizer))
        with without_dispatch_modes():  # the program does not read it
            for each in held:
                self.is_read_elsewhere.pop(each, None)
                if each.grad is not None:
                    self.read[each] = each.grad.detach().clone()
            if not held or self._own_tensors(optimizer):
                self._sees_model()

    def _sees_model(self) -> None:
        """Copy the gradients of parameters that no optimizer has which stepped."""
        for each in self._parameters:
            if each not in self.options:
                self.is_read_elsewhere[each] = None
                if (gradient := gradient_of(each)) is not None:
                    self.begun[each] = self.read[each] = gradient.detach().clone()

    def _find_copies(self, optimizer: Any) -> None:
        """Note which tensors of an optimizer are copies now; rounding noise hides it later."""
        new = [e for e in self._own_tensors(optimizer) if e not in self.copies]
        self.copies.update(copies_among(new, self._parameters))

    def _own_tensors(self, optimizer: Any) -> list[torch.Tensor]:
        """Return the tensors that an optimizer updates, and that are no parameters of the model."""
        return [e for e in parameters_of(optimizer) if e not in self._parameters]

    @property
    def own_options(self) -> dict[str, object]:
        """Return the options that all tensors share that are no parameters of the model."""
        own = [e for t, e in self.options.items() if t not in self._parameters]
        first = own[0] if own else {}
        return {k: v for k, v in first.items() if all(e.get(k) == v for e in own)}

    def sees_end(self, optimizer: Any) -> None:
        """Copy the parameters that the optimizer leaves, and what it read by its own copies."""
        self._running.pop()
        if any(each is optimizer for each in self._running):
            return
        with without_dispatch_modes():  # the program does not read it
            self._find_copies(optimizer)
            for each in self._own_tensors(optimizer):
                if (parameter := self.copies.get(each)) is not None:
                    self._sees_copy(each, parameter)
            for each in parameters_of(optimizer):
                if each in self._parameters and not isinstance(each, DTensor):
                    self.updated[each] = each.detach().clone()

    def _sees_copy(self, copy: torch.Tensor, parameter: nn.Parameter) -> None:
        """Take the gradient and the options of a copy as those of its parameter."""
        self.options[parameter] = self.options[copy]
        if (gradient := copy.grad) is None:
            gradient = self.read.get(copy)
        if gradient is not None:
            self.read[parameter] = gradient.detach().clone()
            self.is_read_elsewhere.pop(parameter, None)

    def gradient(self, parameter: nn.Parameter) -> torch.Tensor | None:
        """Return the gradient of a parameter before any clipping."""
        for copies in (self.before_clip, self.begun, self.read):
            if parameter in copies:
                return copies[parameter]
        gradient = gradient_of(parameter)
        return None if gradient is None else gradient.detach()


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    """Return the tensors that an optimizer updates; none where it does not list them."""
    groups = getattr(optimizer, "param_groups", ())
    return [parameter for group in groups for parameter in group["params"]]


def gradient_of(parameter: nn.Parameter) -> torch.Tensor | None:
    """Return the gradient of a parameter; `main_grad` where a wrapper adds gradients there."""
    if parameter.grad is not None:
        return parameter.grad
    main = getattr(parameter, "main_grad", None)
    is_gradient = isinstance(main, torch.Tensor) and main.shape == parameter.shape
    return main if is_gradient else None


def copies_among(
    tensors: Iterable[torch.Tensor], parameters: Iterable[nn.Parameter]
) -> dict[torch.Tensor, nn.Parameter]:
    """Return the parameter of which each tensor is a copy, also in a higher dtype.

    Tensors with several equal parameters are left out, and parameters with several copies.
    """
    listed = [*parameters]
    found = {t: [p for p in listed if _is_copy(t, p)] for t in tensors}
    times = Counter(each for equal in found.values() for each in equal)
    alone = {t: equal[0] for t, equal in found.items() if len(equal) == 1}
    return {t: p for t, p in alone.items() if times[p] == 1}


def _is_copy(tensor: torch.Tensor, parameter: nn.Parameter) -> bool:
    if tensor.shape != parameter.shape or not tensor.is_floating_point():
        return False
    if isinstance(tensor, DTensor) != isinstance(parameter, DTensor):
        return False
    ours = local_part(tensor.detach()).to(parameter.dtype)
    theirs = local_part(parameter.detach())
    return ours.shape == theirs.shape and bool(torch.equal(ours, theirs))


def options_of(optimizer: Any) -> dict[torch.Tensor, dict[str, object]]:
    """Return the options that change what an optimizer makes, as they are now."""
    return {
        parameter: {
            name: value.item() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name not in _HOW and isinstance(value, _SIMPLE)
        }
        for group in getattr(optimizer, "param_groups", ())
        for parameter in group["params"]
    }


def watch_bases(optimizer: Any) -> None:
    """Let hooks see the step of each base class, as if torch had made an optimizer of it.

    torch patches the class of an optimizer that is made. Without this, hooks would see
    `super().step()` only where the program has made an optimizer of the base class.
    """
    for kind in type(optimizer).__mro__:
        step = vars(kind).get("step")
        is_own = issubclass(kind, Optimizer) and kind is not Optimizer
        if is_own and step is not None and not hasattr(step, "hooked"):
            seen: Any = Optimizer.profile_hook_step(step)
            seen.hooked = True
            kind.step = seen  # type: ignore[attr-defined]  # torch does the same


@contextmanager
def watched_steps(*, notes_functions: bool = False) -> Iterator[None]:
    """Let the watch of each thread see steps, torch's clipping and calls of backward within a block.

    The functions of a graph are noted if that is asked for, since it walks the graph.
    """
    clip, make_gradients = clip_grad._clip_grads_with_norm_, torch.autograd.backward

    def clips(
        parameters: Any,
        max_norm: float,
        total_norm: torch.Tensor,
        *rest: Any,
        **more: Any,
    ) -> None:
        is_one = isinstance(parameters, torch.Tensor)
        listed = [parameters] if is_one else [*parameters]
        if (watch := _watch()) is not None:
            watch.sees_clip(listed, total_norm, max_norm)
        clip(listed, max_norm, total_norm, *rest, **more)

    def backward(*args: Any, **more: Any) -> None:
        if (watch := _watch()) is not None:
            tensors = args[0] if args else more.get("tensors")
            functions = functions_behind(tensors) if notes_functions else []
            watch.sees_backward(calling_line(), functions)
        make_gradients(*args, **more)

    with ExitStack() as stack:
        if notes_functions:
            stack.enter_context(lines_noted())
            starts = _told(lambda watch, module: watch.leaves.sees_start(module))
            ends = _told(lambda watch, module: watch.leaves.sees_end(module))
            stack.callback(register_module_forward_pre_hook(starts).remove)
            stack.callback(register_module_forward_hook(ends).remove)
        stack.callback(register_optimizer_step_pre_hook(_sees_step).remove)
        stack.callback(
            register_optimizer_step_post_hook(_told(StepWatch.sees_end)).remove
        )
        for owner, name, seen in (
            (clip_grad, "_clip_grads_with_norm_", clips),
            (nn.utils, "clip_grads_with_norm_", clips),
            (torch.autograd, "backward", backward),
        ):
            stack.enter_context(patch.object(owner, name, seen))
        yield


def _watch() -> StepWatch | None:
    """Return the watch of this thread."""
    return getattr(_rank, "watch", None)


def _sees_step(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
    if (watch := _watch()) is None:
        return None
    watch.sees_step(optimizer)
    own, *rest = args
    arguments = [_seen_closure(watch, optimizer, each) for each in rest]
    named = {k: _seen_closure(watch, optimizer, each) for k, each in kwargs.items()}
    return (own, *arguments), named


def _seen_closure(watch: StepWatch, optimizer: Optimizer, argument: Any) -> Any:
    """Return the closure of a step, after which the gradients are copied; or any other argument."""
    if not callable(argument):
        return argument

    def closure() -> Any:
        loss = argument()
        watch.sees_gradients(optimizer)
        return loss

    return closure


def _told(see: Callable[[StepWatch, Any], None]) -> Callable[..., None]:
    """Return a hook that lets the watch of its thread see a module or an optimizer."""

    def hook(seen: Any, *_: object) -> None:
        if (watch := _watch()) is not None:
            see(watch, seen)

    return hook
