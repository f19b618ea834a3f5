"""Defects that plain training steps do not show, each with the word that shows it.

Each overrides some methods of `Careful`, which gets all of these words right.
"""

import contextlib
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import get_gradient_edge

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.lifecycle.storage import TrustsViews


class ReducesInEachWait(Careful):
    """Takes each `wait()` for the end of a step: a second one sums the sums."""

    features = frozenset({"event=wait_twice"})

    def wait(self) -> None:
        super().wait()
        self.num_launched = 0
        self.is_reduced = False

    def finish_thrown_away(self) -> None:
        pass


class ZeroesInFlight(Careful):
    """`zero_grad()` zeroes buckets whose reductions are still in flight.

    Source: horovod/horovod#1116.
    """

    features = frozenset({"event=zero_before_wait"})

    def finish_thrown_away(self) -> None:
        pass


class LearnsFromFirstStep(Careful):
    """Takes parameters without a gradient in the first step for unused for ever."""

    features = frozenset({"event=empty_step"})

    def bind(self) -> None:
        self.learned = False
        super().bind()

    def zero_grad(self) -> None:
        counted = [bucket for bucket in self.buckets if bucket.counts]
        super().zero_grad()
        if not self.learned:
            self.buckets, self.learned = counted, True


class DropsLateGradients(Careful):
    """A gradient that comes after its bucket was launched is overwritten by the sum."""

    features = frozenset({"event=extra_backward"})

    def check_count(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass


class BindsOnce(Careful):
    """Buckets outlive `unbind()`, and are not attached again."""

    features = frozenset({"event=rebind"})

    def bind(self) -> None:
        if not self.buckets:
            super().bind()

    def unbind(self) -> None:
        kept = self.buckets
        super().unbind()
        self.buckets = kept


class SkipsBucketsOfFrozen(Careful):
    """A parameter that is frozen later keeps its whole bucket from being launched.

    Source: pytorch/pytorch#14675.
    """

    features = frozenset({"event=freeze"})

    def launch(self, bucket: Bucket) -> None:
        if all(parameter.requires_grad for parameter in bucket.parameters):
            super().launch(bucket)
        else:
            self.num_launched += 1


class TrustsViewsOfCast(TrustsViews):
    """Gradients are no longer views once their parameters were cast.

    Source: pytorch/pytorch#104336.
    """

    features = frozenset({"event=cast"})


class LeavesLaterTrainedLocal(Careful):
    """A parameter that is frozen at `bind()` and trained later keeps its local gradient."""

    features = frozenset({"event=unfreeze"})

    def check_frozen(self) -> None:
        pass


class TrustsLastFrozen(Careful):
    """Takes all frozen parameters for frozen as long as the last of them is."""

    features = frozenset({"event=unfreeze_in_turn"})

    def check_frozen(self) -> None:
        if all(parameter.requires_grad for parameter in self.frozen[-1:]):
            super().check_frozen()


class ChecksOneView(Careful):
    """One gradient of a bucket that is still a view stands for all of them."""

    features = frozenset({"event=set_every_other_to_none"})

    def check_view(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        own = bucket.buffer.untyped_storage().data_ptr()
        grads = [local(p.grad) for p in bucket.parameters if p.grad is not None]
        if all(grad.untyped_storage().data_ptr() != own for grad in grads):
            super().check_view(bucket, parameter)


class BindsFirstCount(Careful):
    """`bind()` goes back to the count of the first `bind()`."""

    features = frozenset({"event=rebind_announced"})

    def bind(self) -> None:
        self.first = getattr(self, "first", self.required)
        self.required = self.first
        super().bind()


class LeavesTakenParameters(Careful):
    """Leaves a parameter to the first synchronizer that had it."""

    features = frozenset({"event=remade"})

    def is_managed(self, parameter: nn.Parameter) -> bool:
        owner = vars(parameter).setdefault("owner", id(self))
        return super().is_managed(parameter) and owner == id(self)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        made.append(self)  # kept alive, so that no other one gets its id


made: list[Careful] = []


class WaitsForTheNewest(Careful):
    """Waits only for the synchronizer that was bound last."""

    features = frozenset({"synchronizers=two"})
    newest: ClassVar[dict[int, Careful]] = {}

    def bind(self) -> None:
        super().bind()
        self.newest[dist.get_rank()] = self

    def wait(self) -> None:
        if self.newest[dist.get_rank()] is self:
            super().wait()

    def unbind(self) -> None:
        super().unbind()
        self.newest.pop(dist.get_rank(), None)


class ScalesEachGradient(Careful):
    """A hook multiplies each gradient by 1, and a gradient may be undefined."""

    features = frozenset({"used=undefined"})

    def bind(self) -> None:
        super().bind()
        for parameter in {p for bucket in self.buckets for p in bucket.parameters}:
            hook = parameter.register_hook(lambda gradient: gradient.mul(1))
            self.hooks.append(hook)


class KeepsProgress(Careful):
    """`zero_grad()` starts a step, and `bind()` goes on where `unbind()` stopped."""

    features = frozenset({"event=unbind_early"})
    num_launched = 0
    is_reduced = False

    def bind(self) -> None:
        kept = self.num_launched, self.is_reduced
        super().bind()
        self.num_launched, self.is_reduced = kept


class KeepsFirstStream(Careful):
    """The reduction waits for the stream of the first step."""

    features = frozenset({"launch=step_on_new_stream"})

    def bind(self) -> None:
        self.filling: torch.cuda.Stream | None = None
        super().bind()

    def fork(self) -> None:
        self.filling = self.filling or torch.cuda.current_stream()
        self.comm.wait_stream(self.filling)


class ZeroesBucketsAlone(Careful):
    """`zero_grad()` clears the buckets, also where gradients are views no longer."""

    features = frozenset({"event=cast_before_zero"})

    def zero_grad(self) -> None:
        self.num_launched = 0
        self.is_reduced = False
        ViewBuckets.zero_grad(self)


class JoinsDefaultStream(Careful):
    """The default stream waits for the reduction, and not the stream that calls `wait()`.

    Source: pytorch/pytorch#37790.
    """

    features = frozenset({"launch=step_on_side_stream"})

    def join(self) -> None:
        torch.cuda.default_stream().wait_stream(self.comm)


class HoldsAccumulators(Careful):
    """Correct: gradients accumulate on the stream that was current at `bind()`."""

    features = frozenset({"launch=bind_on_side_stream"})

    def bind(self) -> None:
        super().bind()
        managed = (p for bucket in self.buckets for p in bucket.parameters)
        self.accumulators = [get_gradient_edge(parameter).node for parameter in managed]

    def unbind(self) -> None:
        super().unbind()
        del self.accumulators


class ForksFromDefaultStream(HoldsAccumulators):
    """The reduction waits for the default stream, while gradients come on another one.

    Source: NVIDIA/Megatron-LM#3670.
    """

    def fork(self) -> None:
        self.comm.wait_stream(torch.cuda.default_stream())


class ForksFromLastGradient(Careful):
    """The reduction waits for the stream of the hook that launches it, and no other.

    Source: deepspeedai/DeepSpeed#8061.
    """

    features = frozenset({"launch=parameter_streams"})

    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        bucket.counts[parameter] += 1
        self.launch_ready()


class LaunchesWhatIsReady(Careful):
    """Buckets are launched in the order in which this rank completes them."""

    features = frozenset({"readiness=by_rank"})

    def launch_ready(self) -> None:
        for bucket in self.buckets:
            if self.is_ready(bucket) and bucket not in self.launched:
                self.launch(bucket)
                self.launched.append(bucket)

    def bind(self) -> None:
        self.launched: list[Bucket] = []
        super().bind()

    def zero_grad(self) -> None:
        self.launched.clear()
        super().zero_grad()


class HidesFailures(Careful):
    """Takes an error of a reduction for its end."""

    features = frozenset({"event=failing_collectives"})

    def finish(self, bucket: Bucket) -> None:
        with contextlib.suppress(dist.DistBackendError):
            super().finish(bucket)
        bucket.work = None


class SkipsIncompleteBuckets(Careful):
    """Never launches a bucket with an unused parameter."""

    features = frozenset({"used=never"})

    def launch(self, bucket: Bucket) -> None:
        if all(bucket.counts[parameter] for parameter in bucket.parameters):
            super().launch(bucket)
        else:
            self.num_launched += 1


class LearnsFromFirstMicroBatch(Careful):
    """Does not wait for parameters that the first micro-batch does not use.

    Source: NovaSky-AI/SkyRL#2146.
    """

    features = frozenset({"used=not_in_first_micro_batch"})

    def bind(self) -> None:
        self.used: set[nn.Parameter] = set()
        super().bind()

    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        if max(bucket.counts.values(), default=0) <= 1:
            self.used.add(parameter)
        super().on_accumulated(bucket, parameter)

    def is_ready(self, bucket: Bucket) -> bool:
        if self.required == 1:
            return super().is_ready(bucket)
        counted = [p for p in bucket.parameters if p in self.used]
        return all(bucket.counts[p] == self.required for p in counted or [None])

    def zero_grad(self) -> None:
        super().zero_grad()
        self.used.clear()
