"""The subject API: the methods that the rank program calls on a subject's instance."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import torch
from torch import nn

from syncverify.errors import SubjectError

REQUIRED_METHODS = ("bind", "wait", "zero_grad", "unbind")
# The name of the method that sets the count; required where the constructor takes none.
COUNT_SETTER = "set_required_accumulations"
SetterOf = Literal["class", "instance", "none"]


class Synchronizer(Protocol):
    """The required methods of a subject's instance."""

    def bind(self) -> None:
        """Start managing gradients."""

    def wait(self) -> None:
        """Return once gradients are safe to read and to write on the current stream."""

    def zero_grad(self) -> None:
        """Start the next step."""

    def unbind(self) -> None:
        """Leave no hook, no buffer and no pending work."""


@runtime_checkable
class VariesAccumulations(Protocol):
    """A subject that lets the number of micro-batches change between steps."""

    def set_required_accumulations(self, require_accumulations: int) -> None:
        """Set the number of micro-batches of the steps from the next one on.

        The number holds until the next call, over `unbind()` and `bind()` too. The call comes
        between `zero_grad()` and the next backward, or after `bind()` and before the first
        one; where the contract covers `event=rebind_announced`, before `bind()` as well.
        """


@runtime_checkable
class EndsStepsEarly(Protocol):
    """A subject with a call for a step that ends before its last micro-batch."""

    def flush(self) -> None:
        """Reduce the gradients accumulated so far; `wait()` follows."""


@runtime_checkable
class Resets(Protocol):
    """A subject that recovers from a failed backward; others get `zero_grad()`."""

    def reset(self) -> None:
        """Return to the state after `bind()`; all ranks call it."""


@runtime_checkable
class MarksByHand(Protocol):
    """A subject with a call for gradients that autograd did not accumulate."""

    def mark_ready(self, *parameters: nn.Parameter) -> None:
        """Count one gradient of each parameter, which the caller has added to `.grad`."""


@runtime_checkable
class StepsInBackward(Protocol):
    """A subject that calls an optimizer by itself, inside of backward.

    Others call hooks of the user, `register_post_accumulate_grad_hook`, once gradients are reduced.
    """

    def step_in_backward(self, step: Callable[[torch.Tensor], None]) -> None:
        """Call a function with each parameter, in each backward that has reduced its gradient.

        Called before `bind()`. The function reads `.grad`, writes the parameter, and sets
        `.grad` to None.
        """


@runtime_checkable
class RunsMicroBatches(Protocol):
    """A subject that wraps forward and backward itself, as DDP does.

    Where the contract covers the feature `backward`, the method also takes
    `run_backward=`: the subject calls it with the result of `compute_loss`, instead of
    calling `.backward()` on that result.
    """

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run forward and backward of one micro-batch."""


@runtime_checkable
class Evaluates(Protocol):
    """A subject that runs micro-batches, and forwards without a backward as well.

    Where the method is missing, such forwards run beside the subject.
    """

    def evaluate(self, compute_loss: Callable[[], torch.Tensor]) -> None:
        """Run a forward in eval mode; called under `no_grad`, and no backward follows."""


@runtime_checkable
class OwnsGradients(Protocol):
    """A subject that leaves the right gradient on its owner alone, and names the owner.

    Called after `bind()` where the contract says `gradients="owner"`.
    """

    def owner(self, parameter: nn.Parameter) -> bool:
        """Tell whether this rank owns the gradient of a parameter, in all steps.

        A gradient that is summed over no other rank is owned by each rank: that of an
        ordinary parameter (no DTensor), and that of a parameter sharded over every axis.
        """


def takes_new_counts(synchronizer: object) -> TypeGuard[VariesAccumulations]:
    """Tell whether an instance has the setter, by its class, a property or `__getattr__`."""
    # `isinstance` with a protocol does not see what `__getattr__` returns, from Python 3.12 on.
    return callable(getattr(synchronizer, COUNT_SETTER, None))


def setter_of(factory: Any, method: str = COUNT_SETTER) -> SetterOf:
    """Return the place of `set_required_accumulations()`, or of another method.

    It is `instance` where only an instance shows whether it has one: a function makes it, a
    property or `__getattr__` returns the method.
    """
    made = factory.func if isinstance(factory, functools.partial) else factory
    if not inspect.isclass(made):
        return "instance"
    if callable(getattr(made, method, None)):
        return "class"
    is_property = hasattr(type(getattr(made, method, None)), "__get__")
    hands_on = any("__getattr__" in vars(each) for each in made.__mro__)
    return "instance" if is_property or hands_on else "none"


def check_methods(candidate: object, name: str, *, takes_count: bool = True) -> None:
    """Refuse a subject, a class or an instance, that lacks a required method.

    It also has to define each abstract method of its bases, such as `wrap()` of an adapter, and
    `set_required_accumulations()` where the constructor takes no number of micro-batches.

    Raises:
        SubjectError: A method is missing.
    """
    required = REQUIRED_METHODS if takes_count else (*REQUIRED_METHODS, COUNT_SETTER)
    missing = [m for m in required if not callable(getattr(candidate, m, None))]
    if missing:
        raise SubjectError(
            f"subject {name!r} lacks {', '.join(f'{m}()' for m in missing)}: "
            f"a subject has {', '.join(f'{m}()' for m in required)}"
        )
    abstract = next(_abstract_methods(candidate), None)
    if abstract is not None:
        method, base = abstract
        raise SubjectError(
            f"subject {name!r} lacks {method}(): {base} leaves it to its subclasses"
        )


def _abstract_methods(candidate: object) -> Iterator[tuple[str, str]]:
    """Yield each abstract method of a class or an instance, with the class that declares it."""
    kind = candidate if inspect.isclass(candidate) else type(candidate)
    for base in kind.__mro__:
        for name, value in vars(base).items():
            # A class without the metaclass ABCMeta can be made an instance of all the same.
            is_abstract = getattr(value, "__isabstractmethod__", False) is True
            if is_abstract and inspect.getattr_static(candidate, name) is value:
                yield name, base.__name__
