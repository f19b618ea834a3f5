"""The function of each word of `BACKWARDS`, which runs the backward of a micro-batch.

Pipelines without bubbles split backward. A stage computes its input gradients first, and
sends them to the stage before. It computes its weight gradients later, while other stages
work.

Source:
    Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), section 2; torch's
    `torch/distributed/pipelining/_backward.py` splits backward in the same way.
"""

import functools
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

from syncverify.playing.program.graphs import hooks, own_accumulation
from syncverify.playing.program.graphs.custom_function import running_in_backward
from syncverify.playing.program.graphs.errors import RAISES, failing_first
from syncverify.playing.program.graphs.losses import (
    AsThread,
    Losses,
    with_input_gradient,
)
from syncverify.scenario.feature_table import PLAIN, WORDS
from syncverify.scenario.scenario import Scenario


def plain(losses: Losses) -> None:
    """Run `backward()` on the sum of all terms."""
    losses.total().backward()


def inputs(losses: Losses) -> None:
    """Name the parameters that get gradients."""
    losses.total().backward(inputs=[*losses.parameters.values()])


def inputs_in_turn(losses: Losses) -> None:
    """Run one backward for each parameter over one graph, kept for the next."""
    total, (*others, last) = losses.total(), losses.parameters.values()
    for parameter in others:
        total.backward(inputs=[parameter], retain_graph=True)
    total.backward(inputs=[last])


def several_roots(losses: Losses) -> None:
    """Start from each term."""
    torch.autograd.backward([*losses.terms.values()])


def grad_tensors(losses: Losses) -> None:
    """Start from half of each term, with a gradient of 2."""
    roots = [term / 2 for term in losses.terms.values()]
    torch.autograd.backward(roots, [torch.full_like(root, 2) for root in roots])


def grad_beside(losses: Losses) -> None:
    """Ask for gradients without accumulating them, then run backward."""
    total = losses.total()
    torch.autograd.grad(total, [*losses.parameters.values()], retain_graph=True)
    total.backward()


def twice_over_one_graph(losses: Losses) -> None:
    """Run two backwards over one graph, each with half of the gradient."""
    total = losses.total()
    half = torch.full_like(total, 0.5)
    total.backward(half, retain_graph=True)
    total.backward(half)


def split(losses: Losses) -> None:
    """Compute the input gradient first, and the parameters' gradients afterwards."""
    edges, ones = with_input_gradient(losses)
    torch.autograd.backward(edges, ones, inputs=[*losses.parameters.values()])


def create_graph(losses: Losses) -> None:
    """Accumulate gradients with a graph: out of place, so `.grad` becomes a new tensor."""
    _use_up_cycle_warning()
    losses.total().backward(create_graph=True)


def anomaly(losses: Losses) -> None:
    """Detect anomalies except NaN: torch cannot look for NaN in a DTensor."""
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        losses.total().backward()


@functools.cache
def _use_up_cycle_warning() -> None:
    """Use up torch's warning that a graph and its gradient refer to each other.

    torch warns once per process, and tests treat warnings as errors. The reference cycle is
    harmless here: subjects drop the graph with the gradient, and Python's garbage collector
    frees the rest.
    """
    leaf = torch.ones((), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        leaf.clone().backward(create_graph=True)
    leaf.grad = None


def compiled_autograd(losses: Losses) -> None:
    """Trace the graph of backward, and run the traced graph."""
    # Imported here: the import takes a second, and few scenarios compile.
    from torch._dynamo.compiled_autograd import _enable as enable_compiled_autograd

    with enable_compiled_autograd(torch.compile(backend="eager", dynamic=True)):
        losses.total().backward()


def on_threads(losses: Losses) -> None:
    """Run the backward of each half of the model on another thread.

    One thread after the other: a simulated rank must not depend on timing.
    """
    names = [*losses.terms]
    for part in (losses.without({*names[1::2]}), losses.without({*names[0::2]})):
        if part.terms:
            _run_on_thread(part)


def _run_on_thread(losses: Losses) -> None:
    errors: list[BaseException] = []
    as_rank = losses.as_rank()
    stream = _own_stream(next(iter(losses.terms.values())).device)

    def run() -> None:
        try:
            with as_rank(), stream:
                losses.total().backward()
        except BaseException as error:  # noqa: BLE001  # raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name=threading.current_thread().name)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _own_stream(device: torch.device) -> AbstractContextManager[Any]:
    """Return the context of the stream that is current now, for use on another thread.

    A new thread has device 0 and its default stream. A backward there would order that
    stream, and not the caller's, after the gradients. Simulated ranks carry theirs.
    """
    if device.type in {"cpu", "meta"}:
        return nullcontext()
    module: Any = torch.get_device_module(device)
    context: AbstractContextManager[Any] = module.stream(module.current_stream(device))
    return context


# The engine nests 60 backwards on one thread, and runs the next ones on another thread.
_DEEP = 70


def reentrant(losses: Losses) -> None:
    """Run one half of the gradient in a nested backward, and the other half around it."""
    _half_inside(losses, depth=1)


def deep_reentrant(losses: Losses) -> None:
    """Run one half of the gradient in 70 nested backwards, and the other half around them."""
    _half_inside(losses, depth=_DEEP)


def _half_inside(losses: Losses, depth: int) -> None:
    # The engine runs the latest node first: the inner half, before the outer half frees the
    # graph that both halves share.
    total = losses.total()
    half = torch.full_like(total, 0.5)
    inner = _wrapped(
        functools.partial(_run_half, losses.as_rank(), total, depth - 1), total
    )
    torch.autograd.backward([inner, total], [torch.ones_like(inner), half])


def _run_half(as_rank: AsThread, total: torch.Tensor, depth: int) -> None:
    """Run half of the gradient inside of some more backwards."""
    # No closure: one that calls itself is a cycle, and would keep the graph alive.
    with as_rank():  # the engine may run this on another thread
        if depth:
            _wrapped(
                functools.partial(_run_half, as_rank, total, depth - 1), total
            ).backward()
        else:
            total.backward(torch.full_like(total, 0.5), retain_graph=True)


def _wrapped(run: Callable[[], None], total: torch.Tensor) -> torch.Tensor:
    """Return a scalar with a backward that calls a function.

    It lies on the device of the loss: the engine has a thread for each device, and orders
    the nodes of one thread alone.
    """
    leaf = torch.ones((), requires_grad=True, device=total.device)
    return running_in_backward(leaf, run)


# Accumulates into every `.grad` exactly the gradient of the sum of all terms.
RunBackward = Callable[[Losses], None]

# A function has the name of its word.
_BY_NAME: Final[Mapping[str, RunBackward]] = {
    **vars(hooks),
    **vars(own_accumulation),
    **{each.__name__: each for each in map(failing_first, RAISES.values())},
    **globals(),
}
BACKWARDS: Final[Mapping[str, RunBackward]] = {
    word: _BY_NAME[word] for word in WORDS["backward"]
}


def run_backward(word: str, losses: Losses) -> None:
    """Run the backward of a micro-batch; without a parameter all words run the plain one."""
    BACKWARDS[word if losses.parameters else PLAIN](losses)


def num_backwards(scenario: Scenario, step: int) -> int:
    """Return the number of gradients of a parameter that the caller announces for a step.

    A synchronizer counts gradients, not micro-batches: the word `twice_over_one_graph` brings two
    gradients to a parameter in one micro-batch. A nested backward brings one more, which is not
    announced.
    """
    is_twice = scenario.backward == "twice_over_one_graph"
    return scenario.accumulations[step] * (2 if is_twice else 1)
