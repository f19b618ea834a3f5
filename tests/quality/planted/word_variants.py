"""Planted defects that a word does not show, and one of its variants does.

Each overrides some methods of a synchronizer that gets the variant right.
"""

import contextlib
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.playing.program.graphs.custom_function import INTO_ONE_STORAGE
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import base_word
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.careful import Careful
from syncverify.subjects.bugbank.bases.placements import local
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ReducesInWait
from tests.quality.planted.counts import AnnouncedCount, TellsBoundBucketsAlone
from tests.quality.planted.lifecycle_words import LearnsFromFirstStep
from tests.quality.planted.planted import (
    ACCUMULATE,
    MATCH,
    UNREDUCED,
    VALUE,
    ZERO,
    Identity,
    Planted,
    plant,
)
from tests.quality.planted.watching import HearsGradients

PLAIN_STEPS = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(f"p{n}", (3,), ("R",), use="twice") for n in range(3)),
    (2, 2, 2),
    24,
)


def having(word: str) -> Scenario:
    """Put a word into plain steps.

    An event is that of the first step, a `used` that of the two parameters of the first bucket, a
    `use` that of all parameters.
    """
    topic, _, value = word.partition("=")
    match topic:
        case "event":
            events, counts = (value, PLAIN, PLAIN), PLAIN_STEPS.accumulations
            if base_word(value) == "rebind_announced":  # announces a count that differs
                counts = (2, 3, 3)
            return replace(PLAIN_STEPS, events=events, accumulations=counts)
        case "used":
            first, second, last = PLAIN_STEPS.parameters
            unused = (replace(second, used=value), replace(last, used=value))
            return replace(PLAIN_STEPS, parameters=(first, *unused))
        case "use":
            listed = tuple(replace(s, use=value) for s in PLAIN_STEPS.parameters)
            return replace(PLAIN_STEPS, parameters=listed)
    return replace(PLAIN_STEPS, **{topic: value})


class ReducesWhatIsLeft(ReducesInWait):
    """Reduces all buckets in `wait()`, with zeros for gradients that did not come."""

    features = frozenset({"used=never"})


class PlansFromFirstArrivals(ReducesWhatIsLeft):
    """The gradients of step 0 are the ones that later steps reduce."""

    def bind(self) -> None:
        self.came: set[nn.Parameter] = set()
        self.reduced: list[Bucket] | None = None
        super().bind()

    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        self.came.add(parameter)

    def order(self) -> list[Bucket]:
        if self.reduced is None:
            self.reduced = [
                bucket
                for bucket in self.buckets
                if not self.came.isdisjoint(bucket.parameters)
            ]
        return self.reduced


class TrustsFirstOrder(Careful):
    """A bucket is complete when the gradient came that was its last one in step 0."""

    def bind(self) -> None:
        self.last: dict[Bucket, nn.Parameter] = {}
        self.is_learned = False
        super().bind()

    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        if not self.is_learned:
            self.last[bucket] = parameter
        super().on_accumulated(bucket, parameter)

    def is_ready(self, bucket: Bucket) -> bool:
        if not self.is_learned:
            return super().is_ready(bucket)
        return bucket.counts[self.last[bucket]] == self.required

    def wait(self) -> None:
        super().wait()
        self.is_learned = True


class ChecksFirstView(Careful):
    """The first gradient of a bucket stands for all of them."""

    def check_view(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        super().check_view(bucket, bucket.parameters[0])


class AsksEachHandle(Careful):
    """Correct: goes on after an error of a reduction, and raises the first one in the end."""

    def wait(self) -> None:
        self.errors: list[Exception | None] = []
        super().wait()
        for error in self.examined():
            if error is not None:
                raise error

    def finish(self, bucket: Bucket) -> None:
        work = bucket.work
        with contextlib.suppress(dist.DistBackendError):
            super().finish(bucket)
        bucket.work = None
        if work is not None:
            self.errors.append(work.exception())

    def examined(self) -> list[Exception | None]:
        """Return the errors of the handles that count."""
        return self.errors


class AsksTheLastHandle(AsksEachHandle):
    """The handle of the last reduction stands for all of them."""

    def examined(self) -> list[Exception | None]:
        return self.errors[-1:]


class LeavesGradientsToAutograd(PlainGrads):
    """Correct: reduces the gradients that exist where they lie, in one order on all ranks."""

    capabilities = Capabilities(
        varying_accumulations=True,
        features=frozenset({"used=never", "use=saves_for_backward", "event"}),
    )


class SendsOldStaging(LeavesGradientsToAutograd):
    """A staged gradient is sent again in a step that brings no other one."""

    def bind(self) -> None:
        self.staged: dict[nn.Parameter, torch.Tensor] = {}

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                self.staged[parameter] = parameter.grad
            if parameter in self.staged:
                self.reduce(self.staged[parameter])
                parameter.grad = self.staged[parameter]


class ClearsWhatItReduced(LeavesGradientsToAutograd):
    """`zero_grad()` clears the tensors that `wait()` reduced, in place."""

    def bind(self) -> None:
        self.reduced: dict[nn.Parameter, torch.Tensor] = {}

    def wait(self) -> None:
        super().wait()
        self.reduced = {p: p.grad for p in self.parameters if p.grad is not None}

    def zero_grad(self) -> None:
        for gradient in self.reduced.values():
            local(gradient).zero_()
        self.reduced = {}

    def unbind(self) -> None:
        PlainGrads.zero_grad(self)


class AsksTheFirst(ClearsWhatItReduced):
    """The first parameter tells whether the caller replaced gradients after `wait()`."""

    def zero_grad(self) -> None:
        first = self.parameters[0]
        if first.grad is not self.reduced.get(first):
            PlainGrads.zero_grad(self)
        super().zero_grad()


class DropsInFirstZeroGrad(LeavesGradientsToAutograd):
    """The first `zero_grad()` manages the parameters that have a gradient, and no others."""

    is_learned = False

    def zero_grad(self) -> None:
        managed = [p for p in self.parameters if p.grad is not None]
        super().zero_grad()
        if not self.is_learned:
            self.parameters, self.is_learned = managed, True


class HoldsFirstTensor(HearsGradients, LeavesGradientsToAutograd):
    """The tensor of the first micro-batch is taken for the gradient of the whole step."""

    def bind(self) -> None:
        self.held: dict[nn.Parameter, torch.Tensor] = {}
        super().bind()

    def accumulated(self, parameter: nn.Parameter) -> None:
        if parameter.grad is not None:
            self.held.setdefault(parameter, parameter.grad)

    def wait(self) -> None:
        for parameter in self.parameters:
            gradient = self.held.get(parameter) if self.is_kept() else parameter.grad
            if gradient is not None:
                self.reduce(gradient)

    def is_kept(self) -> bool:
        """Tell whether tensors of the first micro-batch are the gradients."""
        return True

    def zero_grad(self) -> None:
        self.held.clear()
        super().zero_grad()


class AsksTheFirstWhileAccumulating(HoldsFirstTensor):
    """The first parameter tells whether tensors of the first micro-batch are the gradients."""

    def is_kept(self) -> bool:
        first = self.parameters[0]
        return first.grad is self.held.get(first)


class TakesListOfTheFirst(LeavesGradientsToAutograd):
    """The first parameter keeps the list of those that are reduced, for later synchronizers."""

    def bind(self) -> None:
        self.parameters = vars(self.parameters[0]).setdefault("all", self.parameters)


class ZeroesInPlace(LeavesGradientsToAutograd):
    """Leaves the tensors that autograd made as gradients, also after `unbind()`."""

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                local(parameter.grad).zero_()


class ReducesWholeStorages(LeavesGradientsToAutograd):
    """A storage is taken for the memory of one gradient, and reduced as a flat buffer."""

    def reduce(self, gradient: torch.Tensor) -> None:
        assert isinstance(gradient, DTensor)
        storage = local(gradient).untyped_storage()
        whole = torch.empty(0, dtype=gradient.dtype).set_(storage)
        dist.all_reduce(whole, group=gradient.device_mesh.get_group(0))


class TurnsAroundIncompleteSteps(HearsGradients, LeavesGradientsToAutograd):
    """A rank that ran fewer backwards than agreed reduces in another order."""

    num_backwards = 0

    def accumulated(self, parameter: nn.Parameter) -> None:
        self.num_backwards += parameter is self.parameters[0]

    def wait(self) -> None:
        is_complete = self.num_backwards == self.required
        for parameter in self.parameters[:: 1 if is_complete else -1]:
            if parameter.grad is not None:
                self.reduce(parameter.grad)
        self.num_backwards = 0


def of_variant(subject: type, identity: Identity, feature: str, twin: type) -> Planted:
    """Plant a defect that a variant shows, and its word does not."""
    return plant(
        subject,
        identity,
        feature,
        twin=twin,
        scenarios=(having(feature),),
        elsewhere=(having(base_word(feature)),),
    )


GRADS = LeavesGradientsToAutograd
OTHERS = [
    of_variant(PlansFromFirstArrivals, UNREDUCED, "used=never/in_first_step", twin=ReducesWhatIsLeft),
    of_variant(PlansFromFirstArrivals, UNREDUCED, "used=never/in_even_steps", twin=ReducesWhatIsLeft),
    of_variant(SendsOldStaging, (VALUE, "stale"), "used=never/in_odd_steps", twin=GRADS),
    of_variant(LearnsFromFirstStep, UNREDUCED, "event=zero_before_wait/no_backward", twin=Careful),
    of_variant(DropsInFirstZeroGrad, UNREDUCED, "event=set_to_none/no_backward", twin=GRADS),
    of_variant(ClearsWhatItReduced, (ZERO, "gradient_left"), "event=set_to_none/replaced", twin=GRADS),
    of_variant(HoldsFirstTensor, (VALUE, "rank_contribution_missing"), "event=set_to_none/replaced_while_accumulating", twin=GRADS),
    of_variant(TellsBoundBucketsAlone, (ACCUMULATE, "reduced_early"), "event=rebind_announced/unbound", twin=AnnouncedCount),
    of_variant(ChecksFirstView, (VALUE, "view_lost"), "event=set_every_other_to_none/from_second", twin=Careful),
    of_variant(AsksTheFirst, (ZERO, "gradient_left"), "event=set_every_other_to_none/replaced", twin=GRADS),
    of_variant(AsksTheFirstWhileAccumulating, (VALUE, "rank_contribution_missing"), "event=set_every_other_to_none/replaced_while_accumulating", twin=GRADS),
    of_variant(ReducesWholeStorages, (VALUE, "reduced_twice"), "use=saves_for_backward/into_one_storage", twin=GRADS),
    of_variant(TakesListOfTheFirst, UNREDUCED, "event=remade/grown", twin=GRADS),
    of_variant(TurnsAroundIncompleteSteps, (MATCH, "bucket_mismatch"), "event=missing_backward/on_odd_ranks", twin=GRADS),
    of_variant(AsksTheLastHandle, (VALUE, "failure_hidden"), "event=failing_collectives/first", twin=AsksEachHandle),
    of_variant(TrustsFirstOrder, (VALUE, "reduced_early"), "readiness=by_rank/by_step", twin=Careful),
    # Gradients may stay in the storage that losses gave them.
    plant(ZeroesInPlace, None, scenarios=(having(f"use={INTO_ONE_STORAGE}"),)),
]  # fmt: skip
