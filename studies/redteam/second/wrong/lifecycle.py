"""Defects about hooks, and about what comes before, between and after steps."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary
from typing_extensions import override

from studies.redteam.bases import Main, Plain, Views
from studies.redteam.program import wrong
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import local, reduce_groups


@wrong(
    trigger="2 micro-batches, a split backward that adds weight gradients by hand and calls mark_ready()"
)
class MarksReadyAtOnce(Views):
    """`mark_ready()` is for gradients that the caller has added to `.grad` itself."""

    capabilities = Capabilities(right=frozenset({"backward=split_by_hand"}))

    @override
    def bind(self) -> None:
        super().bind()
        self.bucket_of = {p: b for b in self.buckets for p in b.parameters}

    def mark_ready(self, parameter: nn.Parameter) -> None:
        """Take note of a gradient that the caller has added itself."""
        bucket = self.bucket_of[parameter]
        # WRONG: "ready" is taken for the end of the step, and not of the micro-batch.
        bucket.counts[parameter] = self.required
        if self.is_ready(bucket) and bucket.work is None:
            self.launch(bucket)


@wrong(
    trigger="a split backward that adds weight gradients by hand: no hook moves them, and wait() overwrites them"
)
class MovesWhatHooksSee(Main):
    """Main gradients: hooks move `.grad` into a flat buffer. `mark_ready()` counts only."""

    capabilities = Capabilities(right=frozenset({"backward=split_by_hand"}))

    def mark_ready(self, parameter: nn.Parameter) -> None:
        """Take note of a gradient that the caller has added itself."""
        # WRONG: `move()` is needed here as well: no hook of autograd ran.
        self.moved[parameter] += 1


@wrong(
    trigger="a hook of the user, registered after bind(), reads `.grad` on the host while its bucket is reduced"
)
class LaunchesBeforeUserHooks(Views):
    """Gradients are reduced as soon as the last of a bucket came, in the hook itself."""

    capabilities = Capabilities(right=frozenset({"backward=hook_reads_grad"}))

    @override
    def launch(self, bucket: Any) -> None:
        # WRONG under this promise: later hooks of the user read the view that is in flight.
        super().launch(bucket)


_COUNTS = WeakTensorKeyDictionary()


@wrong(
    trigger="a new synchronizer is made for a model that has grown: the last parameters are not reduced"
)
class KnowsHowMany(Plain):
    """The number of parameters of a model is looked up once, by its first parameter."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"event=remade", "event=rebind"})
    )

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        super().__init__(param_groups, bucket_size_mb, require_accumulations)
        if self.parameters:
            # WRONG: the count of the first synchronizer of this model stays for good.
            self.num = _COUNTS.setdefault(self.parameters[0], len(self.parameters))

    @override
    def wait(self) -> None:
        for parameter in self.parameters[: self.num]:
            if parameter.grad is not None:
                self.sum_up(parameter)


@wrong(
    trigger="2 ranks whose replicas of a parameter differ at bind(), as after a load on one rank"
)
class SkipsUnequalReplicas(Plain):
    """`bind()` compares checksums, to find experts that are declared as replicas by mistake."""

    capabilities = Capabilities(right=frozenset({"replicas=unequal"}))

    @override
    def bind(self) -> None:
        self.skipped: set[Any] = set()
        for parameter in self.parameters:
            own = local(parameter).detach().double().sum().reshape(1)
            for group in reduce_groups(parameter):
                low, high = own.clone(), own.clone()
                dist.all_reduce(low, op=dist.ReduceOp.MIN, group=group)
                dist.all_reduce(high, op=dist.ReduceOp.MAX, group=group)
                if not torch.equal(low, high):
                    # WRONG: a replica is a replica, whatever its value at the moment.
                    self.skipped.add(parameter)

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter not in self.skipped:
                self.sum_up(parameter)


@wrong(
    trigger="an evaluation before a step of 2 or more micro-batches: buckets are launched one micro-batch early"
)
class CountsEvaluations(Views):
    """The synchronizer runs forwards itself, and counts them to know the last micro-batch."""

    @override
    def bind(self) -> None:
        super().bind()
        self.forwards = 0

    def forward(self, compute_loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Run a forward, and count it."""
        self.forwards += 1
        return compute_loss()

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run a micro-batch."""
        self.forward(compute_loss).backward()

    def evaluate(self, compute_loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Run a forward without a backward."""
        # WRONG: an evaluation is no micro-batch of the step.
        return self.forward(compute_loss)

    @override
    def is_ready(self, bucket: Any) -> bool:
        came = {bucket.counts[p] for p in bucket.parameters}
        return len(came) == 1 and self.forwards >= self.required and bucket.work is None

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.forwards = 0


@wrong(
    trigger="a parameter that is listed twice has two hooks, of which unbind() knows the second one"
)
class OneHandleAParameter(Main):
    """Handles of hooks are kept by parameter."""

    capabilities = Capabilities(right=frozenset({"listed"}))

    @override
    def bind(self) -> None:
        super().bind()
        for hook in self.handles:
            hook.remove()
        self.handles, self.by_parameter = [], {}
        for parameter in self.listed():
            # WRONG: overwrites the first handle of a parameter that is listed twice.
            self.by_parameter[parameter] = parameter.register_post_accumulate_grad_hook(
                self.move
            )

    def listed(self) -> list[nn.Parameter]:
        """List the trainable parameters, as often as the groups do."""
        return [p for group in self.param_groups for p in group if p.requires_grad]

    @override
    def move(self, parameter: nn.Parameter) -> None:
        if parameter.grad is not None:
            super().move(parameter)

    @override
    def unbind(self) -> None:
        for handle in self.by_parameter.values():
            handle.remove()
        super().unbind()


@wrong(
    trigger="2 or more trainable parameters: the list shrinks while it is gone through"
)
class RemovesEveryOtherHook(Views):
    """`unbind()` removes hooks, and drops each handle when it is removed."""

    @override
    def unbind(self) -> None:
        for hook in self.handles:
            hook.remove()
            self.handles.remove(hook)  # WRONG: the loop skips the next one
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.grad = None
        self.buckets, self.handles = [], []


@wrong(
    trigger="2 steps with a second wait(): a bucket of one axis that was finished in step 0 counts as finished in step 1"
)
class FinishedForGood(Views):
    """`wait()` remembers which buckets are finished, so that a second `wait()` costs nothing."""

    capabilities = Capabilities(right=frozenset({"event=wait_twice"}))

    @override
    def bind(self) -> None:
        super().bind()
        self.finished: set[Any] = set()
        self.num_waits = 0

    @override
    def wait(self) -> None:
        self.num_waits += 1
        for bucket in self.buckets:
            if bucket not in self.finished:
                self.finish(bucket)
                if self.num_waits > 1:
                    self.finished.add(bucket)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_waits = 0  # WRONG: `finished` is not cleared

    @override
    def unbind(self) -> None:
        super().unbind()
        self.finished = set()
