"""The misuse table: the effect of every call in every state.

On one rank of a world that moves no data. Bucket 0 holds `b` and bucket 1 holds `a`; a
step requires two accumulations; `backward()` brings `b` a gradient.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from syncverify import synchronizer
from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.bucket.bucket import BucketState
from syncverify.synchronizer.contract.config import DEFAULT_CONFIG
from tests.programs import parameter


class Bench:
    """A synchronizer of two parameters, each alone in its bucket."""

    def __init__(self, config: SynchronizerConfig = DEFAULT_CONFIG) -> None:
        mesh = init_device_mesh("cpu", (2,))
        self.a, self.b = (parameter(mesh, numel=512) for _ in "ab")
        self.synchronizer = GradientSynchronizer(
            [[self.a, self.b]],
            2**-10,
            2,
            parameter_names={self.a: "a", self.b: "b"},
            config=config,
        )

    def backward(self, *names: str) -> None:
        sum(getattr(self, name).to_local().sum() for name in names).backward()

    def interrupt(self) -> None:
        late = torch.ones(512, requires_grad=True) * 1
        late.register_hook(lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            (self.a.to_local() + late).sum().backward()

    def no_sync(self) -> None:
        with self.synchronizer.no_sync():
            self.backward("b")

    def state(self) -> str:
        """Name the state that the synchronizer is in."""
        sequence = self.synchronizer._sequence
        if sequence is None:
            return "unbound"
        if sequence._failure or sequence._backward.is_open:
            return "failed"
        states = {bucket.state for bucket in sequence.buckets}
        if states == {BucketState.REDUCED}:
            return "reduced"
        if states == {BucketState.LAUNCHED}:
            return "complete"
        if BucketState.LAUNCHED in states:
            return "in flight"
        used = any(view.is_used for bucket in sequence.buckets for view in bucket.views)
        return "started" if used else "idle"


STATES: dict[str, Callable[[Bench], None]] = {
    "unbound": lambda bench: None,
    "idle": lambda bench: bench.synchronizer.bind(),
    "started": lambda bench: (bench.synchronizer.bind(), bench.backward("a", "b")),
    "in flight": lambda bench: (
        bench.synchronizer.bind(),
        bench.backward("a", "b"),
        bench.backward("b"),
    ),
    "complete": lambda bench: (
        bench.synchronizer.bind(),
        bench.backward("a", "b"),
        bench.backward("a", "b"),
    ),
    "reduced": lambda bench: (STATES["complete"](bench), bench.synchronizer.wait()),
    "failed": lambda bench: (bench.synchronizer.bind(), bench.interrupt()),
}
CALLS: dict[str, Callable[[Bench], None]] = {
    "bind()": lambda bench: bench.synchronizer.bind(),
    "backward()": lambda bench: bench.backward("b"),
    "backward() in no_sync()": Bench.no_sync,
    "mark_ready(b)": lambda bench: bench.synchronizer.mark_ready(bench.b),
    "flush()": lambda bench: bench.synchronizer.flush(),
    "wait()": lambda bench: bench.synchronizer.wait(),
    "wait(scale=2)": lambda bench: bench.synchronizer.wait(scale=2),
    "scale_grads(2)": lambda bench: bench.synchronizer.scale_grads(2),
    "zero_grad()": lambda bench: bench.synchronizer.zero_grad(),
    "set_required_accumulations(2)": lambda bench: (
        bench.synchronizer.set_required_accumulations(2)
    ),
    "owned_grads()": lambda bench: bench.synchronizer.owned_grads(),
    "grad_norm()": lambda bench: bench.synchronizer.grad_norm(),
    "clip_grad_norm_(1)": lambda bench: bench.synchronizer.clip_grad_norm_(1),
    "logging_data()": lambda bench: bench.synchronizer.logging_data(),
    "reset()": lambda bench: bench.synchronizer.reset(),
    "unbind()": lambda bench: bench.synchronizer.unbind(),
}
NEED_SUMS = ("scale_grads()", "owned_grads()", "grad_norm()", "clip_grad_norm_()")
NEED_BOUND = (
    "no_sync()",
    "mark_ready()",
    "flush()",
    "wait()",
    "zero_grad()",
    *NEED_SUMS,
)


@dataclass(frozen=True)
class Refusal:
    """An error of the synchronizer, part by part; without a hint, that of its class."""

    error: type[synchronizer.SynchronizerError]
    headline: str
    expected: str
    got: str
    where: str
    hint: str | None = None

    def lines(self) -> list[str]:
        """Return the lines of the message."""
        return [
            self.headline,
            f"  expected: {self.expected}",
            f"  got:      {self.got}",
            f"  where:    {self.where}",
            f"  hint: {self.hint or self.error.hint}",
        ]


NOT_READY = Refusal(
    synchronizer.BucketNotReadyError,
    "wait() was called before every gradient was accumulated",
    "2 accumulations each (require_accumulations=2)",
    "b 0, a 0",
    "rank 0 of 2, bucket 0, bucket 1",
)
STARTED = Refusal(
    synchronizer.LifecycleError,
    "the required accumulations were changed in the middle of a step",
    "require_accumulations=2 until zero_grad()",
    "2, and 2 of 2 buckets started",
    "rank 0 of 2, bucket 0, bucket 1",
    "call it after synchronizer.zero_grad() and before the next backward",
)
IN_FLIGHT = Refusal(
    synchronizer.LifecycleError,
    "zero_grad() was called while gradients are being reduced",
    "wait() between the last backward and zero_grad()",
    "2 of 2 buckets in flight",
    "rank 0 of 2, bucket 0, bucket 1",
    "call wait() first, or reset() or unbind() on every rank to give up the step",
)
LATE = Refusal(
    synchronizer.LateAccumulationError,
    "b accumulated a gradient after its bucket was launched",
    "2 accumulations (require_accumulations=2)",
    "accumulation 3 of b",
    "rank 0 of 2, bucket 0, launched",
)
MESSAGES = {
    **{
        f"not bound: {call}": Refusal(
            synchronizer.LifecycleError,
            f"{call} was called on a synchronizer that is not bound",
            "bind() before, unbind() after",
            "GradientSynchronizer(unbound, require_accumulations=2)",
            "rank 0 of 2",
            "call bind() first",
        )
        for call in (*NEED_BOUND, "logging_data()")
    },
    **{
        f"not reduced: {call}": Refusal(
            synchronizer.LifecycleError,
            f"{call} was called before wait()",
            f"{call} between wait() and zero_grad()",
            "2 of 2 buckets not waited for",
            "rank 0 of 2, bucket 0, bucket 1",
            "call wait() first; a factor can be given to wait(scale=...)",
        )
        for call in NEED_SUMS
    },
    "bound twice": Refusal(
        synchronizer.LifecycleError,
        "bind() was called on a bound synchronizer",
        "unbind() between two calls of bind()",
        "GradientSynchronizer(bound, require_accumulations=2)",
        "rank 0 of 2",
        "call unbind() first",
    ),
    "not ready: flush, nothing came": replace(
        NOT_READY,
        headline="flush() was called before every parameter had a gradient",
        expected="1 accumulation or more each (require_accumulations=2)",
    ),
    "not ready: nothing came": NOT_READY,
    "not ready: both lack one": replace(NOT_READY, got="b 1, a 1"),
    "not ready: a lacks one": replace(
        NOT_READY, got="a 1", where="rank 0 of 2, bucket 1"
    ),
    "step started: both": STARTED,
    "step started: one": replace(
        STARTED, got="2, and 1 of 2 buckets started", where="rank 0 of 2, bucket 1"
    ),
    "in flight: both": IN_FLIGHT,
    "in flight: one": replace(
        IN_FLIGHT, got="1 of 2 buckets in flight", where="rank 0 of 2, bucket 0"
    ),
    "late, launched": LATE,
    "late, reduced": replace(
        LATE,
        expected="2 accumulations (require_accumulations=2), then synchronizer.zero_grad()"
        " before the next backward",
        where="rank 0 of 2, bucket 0, reduced",
    ),
    "reduced before": Refusal(
        synchronizer.LifecycleError,
        "wait(scale=...) was called on a step that was waited for before",
        "one wait(scale=...) in a step, the first wait()",
        "gradients that were given to the caller already",
        "rank 0 of 2",
        "give the scale to the first wait(), or use scale_grads() after it",
    ),
    "step failed": Refusal(
        synchronizer.StepFailedError,
        "the step went on after an error",
        "synchronizer.zero_grad() or unbind() after an error",
        "gradients of a backward that did not end",
        "rank 0 of 2",
    ),
}
# state, call, state after it, and its error, if there is one
LINES = [
    ("unbound", "bind()", "idle", None),
    ("unbound", "backward()", "unbound", None),
    ("unbound", "backward() in no_sync()", "unbound", "not bound: no_sync()"),
    ("unbound", "set_required_accumulations(2)", "unbound", None),
    ("idle", "backward()", "started", None),
    ("idle", "backward() in no_sync()", "started", None),
    ("idle", "mark_ready(b)", "started", None),
    ("idle", "flush()", "idle", "not ready: flush, nothing came"),
    ("idle", "wait()", "idle", "not ready: nothing came"),
    ("idle", "wait(scale=2)", "idle", "not ready: nothing came"),
    ("idle", "zero_grad()", "idle", None),
    ("idle", "set_required_accumulations(2)", "idle", None),
    ("started", "backward()", "in flight", None),
    ("started", "backward() in no_sync()", "started", None),
    ("started", "mark_ready(b)", "in flight", None),
    ("started", "flush()", "complete", None),
    ("started", "wait()", "started", "not ready: both lack one"),
    ("started", "wait(scale=2)", "started", "not ready: both lack one"),
    ("started", "zero_grad()", "idle", None),
    ("started", "set_required_accumulations(2)", "started", "step started: both"),
    ("in flight", "backward()", "failed", "late, launched"),
    ("in flight", "backward() in no_sync()", "failed", "late, launched"),
    ("in flight", "mark_ready(b)", "failed", "late, launched"),
    ("in flight", "flush()", "complete", None),
    ("in flight", "wait()", "in flight", "not ready: a lacks one"),
    ("in flight", "wait(scale=2)", "in flight", "not ready: a lacks one"),
    ("in flight", "zero_grad()", "in flight", "in flight: one"),
    ("in flight", "set_required_accumulations(2)", "in flight", "step started: both"),
    ("complete", "backward()", "failed", "late, launched"),
    ("complete", "backward() in no_sync()", "failed", "late, launched"),
    ("complete", "mark_ready(b)", "failed", "late, launched"),
    ("complete", "flush()", "complete", None),
    ("complete", "wait()", "reduced", None),
    ("complete", "wait(scale=2)", "reduced", None),
    ("complete", "zero_grad()", "complete", "in flight: both"),
    ("complete", "set_required_accumulations(2)", "complete", "step started: both"),
    ("reduced", "backward()", "failed", "late, reduced"),
    ("reduced", "backward() in no_sync()", "failed", "late, reduced"),
    ("reduced", "mark_ready(b)", "failed", "late, reduced"),
    ("reduced", "flush()", "reduced", None),
    ("reduced", "wait()", "reduced", None),
    ("reduced", "wait(scale=2)", "reduced", "reduced before"),
    ("reduced", "zero_grad()", "idle", None),
    ("reduced", "set_required_accumulations(2)", "reduced", "step started: both"),
    ("failed", "backward()", "failed", "step failed"),
    ("failed", "backward() in no_sync()", "failed", "step failed"),
    ("failed", "zero_grad()", "idle", None),
    ("failed", "set_required_accumulations(2)", "failed", "step started: one"),
    ("unbound", "logging_data()", "unbound", "not bound: logging_data()"),
]
UNREDUCED = ("idle", "started", "in flight", "complete")
BOUND = (*UNREDUCED, "reduced", "failed")
LINES += [(state, "reset()", "idle", None) for state in STATES]
LINES += [(state, "unbind()", "unbound", None) for state in STATES]
LINES += [(state, "bind()", state, "bound twice") for state in BOUND]
LINES += [(state, "logging_data()", state, None) for state in BOUND]
for call in CALLS:
    name = re.sub(r"\(.*\)", "()", call)
    if name in NEED_BOUND:
        LINES += [("unbound", call, "unbound", f"not bound: {name}")]
    if name in NEED_BOUND and name != "zero_grad()":
        LINES += [("failed", call, "failed", "step failed")]
    if name in NEED_SUMS:
        LINES += [("reduced", call, "reduced", None)]
        LINES += [(state, call, state, f"not reduced: {name}") for state in UNREDUCED]
