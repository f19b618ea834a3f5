"""Defects that plain training steps do not show, each with the word that shows it.

Each overrides some methods of `Careful`, which gets all of these words right.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import get_gradient_edge

from syncverify.scenario.scenario import Scenario
from syncverify.subjects.bugbank.bases.careful import Careful
from syncverify.subjects.bugbank.bases.placements import local
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.subjects.bugbank.cross_rank import PacksWhatIsUsed
from syncverify.subjects.bugbank.entry import Marked, marking
from syncverify.subjects.bugbank.faults import KeepsCountsOfFailedStep
from syncverify.subjects.bugbank.lifecycle.storage import (
    ForgetsEarlierMicroBatches,
    TrustsViews,
    TrustsViewsOfMoved,
)
from syncverify.subjects.bugbank.lifecycle.windows import (
    LeavesTail,
    WaitsForWhatWasLaunched,
)
from syncverify.subjects.subject import resolve
from tests.quality.planted.planted import (
    ACCUMULATE,
    FILLED,
    LIVE,
    LOCAL,
    MATCH,
    READ,
    UNREDUCED,
    VALUE,
    WAITS,
    ZERO,
    Identity,
    Planted,
    each_parameter,
    plant,
)

READS_EARLY = (FILLED, "reduced_before_accumulated")
LOST = (VALUE, "view_lost")


def without(topic: str) -> Callable[[Scenario], Scenario]:
    """Make the plain scenario of one that has nothing special but this topic."""
    return {
        "event": lambda scenario: replace(scenario, events=()),
        "launch": lambda scenario: replace(scenario, launch="current_stream"),
        "readiness": lambda scenario: replace(scenario, readiness="same"),
        "synchronizers": lambda scenario: replace(scenario, synchronizers="one"),
        "used": each_parameter(lambda spec: replace(spec, used="always")),
    }[topic]


def of_word(
    subject: type[Any], feature: str, identity: Identity, **fields: Any
) -> Planted:
    """Plant a defect that a word shows; a class that gets all words right is its twin."""
    own = resolve(subject).capabilities
    # Features promised right are drawn more often than features that may be refused.
    contract = replace(own, features=frozenset(), right=frozenset({feature}))
    taken_out = without(feature.partition("=")[0])
    own_fields = {"twin": Careful, "contract": contract, "without": taken_out}
    return plant(subject, identity, feature, **own_fields | fields)


def word(feature: str, identity: Identity, **fields: Any) -> Callable[[Marked], Marked]:
    """Mark a class as a defect that a word shows, and let it promise the word."""

    def mark(subject: Marked) -> Marked:
        subject.features = frozenset({feature})
        return marking(lambda own: of_word(own, feature, identity, **fields))(subject)

    return mark


@word("event=wait_twice", (VALUE, "reduced_twice"))
class ReducesInEachWait(Careful):
    """Takes each `wait()` for the end of a step: a second one sums the sums."""

    def wait(self) -> None:
        super().wait()
        self.num_launched = 0
        self.is_reduced = False

    def finish_thrown_away(self) -> None:
        pass


@word("event=zero_before_wait", ("zero_grad_waits_for_reduce", "zeroed_in_flight"))
class ZeroesInFlight(Careful):
    """`zero_grad()` zeroes buckets whose reductions are still in flight.

    Source: horovod/horovod#1116.
    """

    def finish_thrown_away(self) -> None:
        pass


@word("event=empty_step", UNREDUCED)
class LearnsFromFirstStep(Careful):
    """Takes parameters without a gradient in the first step for unused for ever."""

    def bind(self) -> None:
        self.learned = False
        super().bind()

    def zero_grad(self) -> None:
        counted = [bucket for bucket in self.buckets if bucket.counts]
        super().zero_grad()
        if not self.learned:
            self.buckets, self.learned = counted, True


@word("event=extra_backward", (VALUE, "reduced_early"))
class DropsLateGradients(Careful):
    """A gradient that comes after its bucket was launched is overwritten by the sum."""

    def check_count(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass


@word("event=rebind", (LIVE, "raised_RuntimeError"))
class BindsOnce(Careful):
    """Buckets outlive `unbind()`, and are not attached again."""

    def bind(self) -> None:
        if not self.buckets:
            super().bind()

    def unbind(self) -> None:
        kept = self.buckets
        super().unbind()
        self.buckets = kept


@word("event=freeze", UNREDUCED)
class SkipsBucketsOfFrozen(Careful):
    """A parameter that is frozen later keeps its whole bucket from being launched.

    Source: pytorch/pytorch#14675.
    """

    def launch(self, bucket: Bucket) -> None:
        if all(parameter.requires_grad for parameter in bucket.parameters):
            super().launch(bucket)
        else:
            self.num_launched += 1


@word("event=cast", LOST)
class TrustsViewsOfCast(TrustsViews):
    """Gradients are no longer views once their parameters were cast.

    Source: pytorch/pytorch#104336.
    """

    features = frozenset({"event=cast"})


@word("event=unfreeze", UNREDUCED)
class LeavesLaterTrainedLocal(Careful):
    """A parameter that is frozen at `bind()` and trained later keeps its local gradient."""

    def check_frozen(self) -> None:
        pass


@word("event=unfreeze_in_turn", UNREDUCED)
class TrustsLastFrozen(Careful):
    """Takes all frozen parameters for frozen as long as the last of them is."""

    def check_frozen(self) -> None:
        if all(parameter.requires_grad for parameter in self.frozen[-1:]):
            super().check_frozen()


@word("event=set_every_other_to_none", LOST)
class ChecksOneView(Careful):
    """One gradient of a bucket that is still a view stands for all of them."""

    def check_view(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        own = bucket.buffer.untyped_storage().data_ptr()
        grads = [local(p.grad) for p in bucket.parameters if p.grad is not None]
        if all(grad.untyped_storage().data_ptr() != own for grad in grads):
            super().check_view(bucket, parameter)


@word("event=rebind_announced", (ACCUMULATE, "reduced_early"))
class BindsFirstCount(Careful):
    """`bind()` goes back to the count of the first `bind()`."""

    def bind(self) -> None:
        self.first = getattr(self, "first", self.required)
        self.required = self.first
        super().bind()


@word("event=remade", UNREDUCED)
class LeavesTakenParameters(Careful):
    """Leaves a parameter to the first synchronizer that had it."""

    def is_managed(self, parameter: nn.Parameter) -> bool:
        owner = vars(parameter).setdefault("owner", id(self))
        return super().is_managed(parameter) and owner == id(self)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        made.append(self)  # kept alive, so that no other one gets its id


made: list[Careful] = []


@word("synchronizers=two", (READ, "read_before_reduced"))
class WaitsForTheNewest(Careful):
    """Waits only for the synchronizer that was bound last."""

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


@word("used=undefined", (LIVE, "unclear_error"))
class ScalesEachGradient(Careful):
    """A hook multiplies each gradient by 1, and a gradient may be undefined."""

    def bind(self) -> None:
        super().bind()
        for parameter in {p for bucket in self.buckets for p in bucket.parameters}:
            hook = parameter.register_hook(lambda gradient: gradient.mul(1))
            self.handles.append(hook)


@word("event=unbind_early", UNREDUCED)
class KeepsProgress(Careful):
    """`zero_grad()` starts a step, and `bind()` goes on where `unbind()` stopped."""

    num_launched = 0
    is_reduced = False

    def bind(self) -> None:
        kept = self.num_launched, self.is_reduced
        super().bind()
        self.num_launched, self.is_reduced = kept


@word("launch=step_on_new_stream", READS_EARLY)
class KeepsFirstStream(Careful):
    """The reduction waits for the stream of the first step."""

    def bind(self) -> None:
        self.filling: torch.cuda.Stream | None = None
        super().bind()

    def fork(self) -> None:
        self.filling = self.filling or torch.cuda.current_stream()
        self.comm.wait_stream(self.filling)


@word("event=cast_before_zero", (ZERO, "gradient_left"))
class ZeroesBucketsAlone(Careful):
    """`zero_grad()` clears the buckets, also where gradients are views no longer."""

    def zero_grad(self) -> None:
        self.num_launched = 0
        self.is_reduced = False
        ViewBuckets.zero_grad(self)


@word("launch=step_on_side_stream", (READ, "read_before_reduced"))
class JoinsDefaultStream(Careful):
    """The default stream waits for the reduction, and not the stream that calls `wait()`.

    Source: pytorch/pytorch#37790.
    """

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


@word("launch=bind_on_side_stream", READS_EARLY, twin=HoldsAccumulators)
class ForksFromDefaultStream(HoldsAccumulators):
    """The reduction waits for the default stream, while gradients come on another one.

    Source: NVIDIA/Megatron-LM#3670.
    """

    def fork(self) -> None:
        self.comm.wait_stream(torch.cuda.default_stream())


@word("launch=parameter_streams", READS_EARLY)
class ForksFromLastGradient(Careful):
    """The reduction waits for the stream of the hook that launches it, and no other.

    Source: deepspeedai/DeepSpeed#8061.
    """

    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        bucket.counts[parameter] += 1
        self.launch_ready()


@word("readiness=by_rank", (MATCH, "bucket_mismatch"))
class LaunchesWhatIsReady(Careful):
    """Buckets are launched in the order in which this rank completes them."""

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


@word("event=failing_collectives", (VALUE, "failure_hidden"))
class HidesFailures(Careful):
    """Takes an error of a reduction for its end."""

    def finish(self, bucket: Bucket) -> None:
        with contextlib.suppress(dist.DistBackendError):
            super().finish(bucket)
        bucket.work = None


@word("used=never", UNREDUCED)
class SkipsIncompleteBuckets(Careful):
    """Never launches a bucket with an unused parameter."""

    def launch(self, bucket: Bucket) -> None:
        if all(bucket.counts[parameter] for parameter in bucket.parameters):
            super().launch(bucket)
        else:
            self.num_launched += 1


# Few scenarios show it: seed 0 draws none among those that the test plays.
@word(
    "used=not_in_first_micro_batch", (VALUE, "reduced_early"), examples=1000, seeds=(5,)
)
class LearnsFromFirstMicroBatch(Careful):
    """Does not wait for parameters that the first micro-batch does not use.

    Source: NovaSky-AI/SkyRL#2146.
    """

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


OTHERS = [
    of_word(TrustsViews, "event=set_to_none", LOST),
    of_word(WaitsForWhatWasLaunched, "event=missing_backward", UNREDUCED),
    of_word(LeavesTail, "event=tail", UNREDUCED),
    of_word(
        KeepsCountsOfFailedStep,
        "event=raise_in_backward",
        (ACCUMULATE, "reduced_early"),
    ),
    of_word(TrustsViewsOfMoved, "event=move", LOST),
    of_word(PacksWhatIsUsed, "used=not_on_odd_ranks", (WAITS, "deadlock")),
    of_word(
        ForgetsEarlierMicroBatches, "used=not_in_last_micro_batch", (LOCAL, "erased")
    ),
]
