"""Planted defects that a word does not show, and one of its variants does.

Each overrides some methods of a synchronizer that gets the variant right.
"""

import contextlib
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.in_wait import ReducesInWait
from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.program.graphs.shared_storage import INTO_ONE_STORAGE
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import base_word
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.quality.planted.counts import AnnouncedCount, TellsBoundBucketsAlone
from tests.quality.planted.planted import (
    UNREDUCED,
    VALUE,
    Identity,
    Planted,
    plant,
)

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


class SkipsUnused(PlainGrads):
    """Reduces the gradients that exist, in one order on all ranks."""

    capabilities = Capabilities(
        varying_accumulations=True, features=frozenset({"used=never"})
    )


class SendsOldStaging(SkipsUnused):
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


class LaunchesInOneOrder(Careful):
    """Launches complete buckets in one order on all ranks."""

    features = frozenset({"readiness=by_rank"})


class TrustsFirstOrder(LaunchesInOneOrder):
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


class ClearsAtAnyTime(Careful):
    """`zero_grad()` may come at any time after `bind()`."""

    features = frozenset({"event=zero_before_wait"})


class LearnsInFirstZeroGrad(ClearsAtAnyTime):
    """The first `zero_grad()` takes parameters that had no gradient for unused ones."""

    def bind(self) -> None:
        self.is_learned = False
        super().bind()

    def zero_grad(self) -> None:
        came = [bucket for bucket in self.buckets if bucket.counts]
        super().zero_grad()
        if not self.is_learned:
            self.buckets, self.is_learned = came, True


class LeavesGradientsToAutograd(PlainGrads):
    """Reduces `.grad` in the memory where it lies."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"event=set_to_none"})
    )


class ClearsWhatItReduced(LeavesGradientsToAutograd):
    """`zero_grad()` clears the tensors that `wait()` reduced, in place."""

    def wait(self) -> None:
        super().wait()
        listed = (parameter.grad for parameter in self.parameters)
        self.reduced = [gradient for gradient in listed if gradient is not None]

    def zero_grad(self) -> None:
        for gradient in self.reduced:
            local(gradient).zero_()
        self.reduced = []

    def bind(self) -> None:
        self.reduced: list[torch.Tensor] = []

    def unbind(self) -> None:
        PlainGrads.zero_grad(self)


class DropsInFirstZeroGrad(LeavesGradientsToAutograd):
    """The first `zero_grad()` manages the parameters that have a gradient, and no others."""

    def bind(self) -> None:
        self.managed: list[nn.Parameter] | None = None

    def zero_grad(self) -> None:
        if self.managed is None:
            self.managed = [p for p in self.parameters if p.grad is not None]
        super().zero_grad()

    def wait(self) -> None:
        managed = self.parameters if self.managed is None else self.managed
        for parameter in managed:
            if parameter.grad is not None:
                self.reduce(parameter.grad)


class HoldsFirstTensor(LeavesGradientsToAutograd):
    """The tensor of the first micro-batch is taken for the gradient of the whole step."""

    def bind(self) -> None:
        self.held: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.hold)
            self.handles.append(hook)

    def hold(self, parameter: nn.Parameter) -> None:
        if parameter.grad is not None:
            self.held.setdefault(parameter, parameter.grad)

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter in self.held:
                self.reduce(self.held[parameter])

    def zero_grad(self) -> None:
        self.held.clear()
        super().zero_grad()


class ChecksFirstView(Careful):
    """The first gradient of a bucket stands for all of them."""

    features = frozenset({"event=set_every_other_to_none"})

    def check_view(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        super().check_view(bucket, bucket.parameters[0])


class ChecksEachView(Careful):
    """Each gradient stands for itself."""

    features = frozenset({"event=set_every_other_to_none"})


class AllowsEveryOther(LeavesGradientsToAutograd):
    """Each gradient is reduced and dropped where it lies."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"event=set_every_other_to_none"})
    )


class AsksTheFirst(AllowsEveryOther):
    """The first parameter tells whether the caller replaced gradients after `wait()`."""

    def bind(self) -> None:
        self.reduced: dict[nn.Parameter, torch.Tensor] = {}

    def wait(self) -> None:
        super().wait()
        self.reduced = {p: p.grad for p in self.parameters if p.grad is not None}

    def zero_grad(self) -> None:
        first = self.parameters[0]
        if first.grad is not self.reduced.get(first):
            super().zero_grad()
        for gradient in self.reduced.values():
            local(gradient).zero_()
        self.reduced = {}

    def unbind(self) -> None:
        PlainGrads.zero_grad(self)


class AsksTheFirstWhileAccumulating(AllowsEveryOther):
    """The first parameter tells whether tensors of the first micro-batch are the gradients."""

    def bind(self) -> None:
        self.held: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.hold)
            self.handles.append(hook)

    def hold(self, parameter: nn.Parameter) -> None:
        if parameter.grad is not None:
            self.held.setdefault(parameter, parameter.grad)

    def wait(self) -> None:
        first = self.parameters[0]
        is_kept = first.grad is self.held.get(first)
        for parameter in self.parameters:
            gradient = self.held.get(parameter) if is_kept else parameter.grad
            if gradient is not None:
                self.reduce(gradient)

    def zero_grad(self) -> None:
        self.held.clear()
        super().zero_grad()


class MadeAgain(PlainGrads):
    """Each synchronizer reduces the parameters that it was given."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"event=remade"})
    )


class TakesListOfTheFirst(MadeAgain):
    """The first parameter keeps the list of those that are reduced, for later synchronizers."""

    def bind(self) -> None:
        self.parameters = vars(self.parameters[0]).setdefault("all", self.parameters)


class UsesFunctions(PlainGrads):
    """Reduces each gradient where it lies."""

    capabilities = Capabilities(right=frozenset({"use=saves_for_backward"}))


class ZeroesInPlace(UsesFunctions):
    """Leaves the tensors that autograd made as gradients, also after `unbind()`."""

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                local(parameter.grad).zero_()


class ReducesWholeStorages(UsesFunctions):
    """A storage is taken for the memory of one gradient, and reduced as a flat buffer."""

    def reduce(self, gradient: torch.Tensor) -> None:
        assert isinstance(gradient, DTensor)
        storage = local(gradient).untyped_storage()
        whole = torch.empty(0, dtype=gradient.dtype).set_(storage)
        dist.all_reduce(whole, group=gradient.device_mesh.get_group(0))


class ReducesInOneOrder(SkipsUnused):
    """Ranks that ran fewer backwards reduce in the order of the others."""

    capabilities = Capabilities(
        varying_accumulations=True, features=frozenset({"event=missing_backward"})
    )


class TurnsAroundIncompleteSteps(ReducesInOneOrder):
    """A rank that ran fewer backwards than agreed reduces in another order."""

    def bind(self) -> None:
        self.num_backwards = 0
        hook = self.parameters[0].register_post_accumulate_grad_hook(self.count)
        self.handles.append(hook)

    def count(self, _: nn.Parameter) -> None:
        self.num_backwards += 1

    def wait(self) -> None:
        is_complete = self.num_backwards == self.required
        for parameter in self.parameters[:: 1 if is_complete else -1]:
            if parameter.grad is not None:
                self.reduce(parameter.grad)
        self.num_backwards = 0


class AsksEachHandle(Careful):
    """Goes on after an error of a reduction, and raises the first one in the end."""

    features = frozenset({"event=failing_collectives"})

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


OTHERS = [
    of_variant(PlansFromFirstArrivals, UNREDUCED, "used=never/in_first_step", twin=ReducesWhatIsLeft),
    of_variant(PlansFromFirstArrivals, UNREDUCED, "used=never/in_even_steps", twin=ReducesWhatIsLeft),
    of_variant(SendsOldStaging, (VALUE, "stale"), "used=never/in_odd_steps", twin=SkipsUnused),
    of_variant(LearnsInFirstZeroGrad, UNREDUCED, "event=zero_before_wait/no_backward", twin=ClearsAtAnyTime),
    of_variant(DropsInFirstZeroGrad, UNREDUCED, "event=set_to_none/no_backward", twin=LeavesGradientsToAutograd),
    of_variant(ClearsWhatItReduced, ("zero_grad_clears", "gradient_left"), "event=set_to_none/replaced", twin=LeavesGradientsToAutograd),
    of_variant(HoldsFirstTensor, (VALUE, "rank_contribution_missing"), "event=set_to_none/replaced_while_accumulating", twin=LeavesGradientsToAutograd),
    of_variant(TellsBoundBucketsAlone, ("accumulation_is_local_until_reduced", "reduced_early"), "event=rebind_announced/unbound", twin=AnnouncedCount),
    of_variant(ChecksFirstView, (VALUE, "view_lost"), "event=set_every_other_to_none/from_second", twin=ChecksEachView),
    of_variant(AsksTheFirst, ("zero_grad_clears", "gradient_left"), "event=set_every_other_to_none/replaced", twin=AllowsEveryOther),
    of_variant(AsksTheFirstWhileAccumulating, (VALUE, "rank_contribution_missing"), "event=set_every_other_to_none/replaced_while_accumulating", twin=AllowsEveryOther),
    of_variant(ReducesWholeStorages, (VALUE, "reduced_twice"), "use=saves_for_backward/into_one_storage", twin=UsesFunctions),
    of_variant(TakesListOfTheFirst, UNREDUCED, "event=remade/grown", twin=MadeAgain),
    of_variant(TurnsAroundIncompleteSteps, ("collectives_match_across_ranks", "bucket_mismatch"), "event=missing_backward/on_odd_ranks", twin=ReducesInOneOrder),
    of_variant(AsksTheLastHandle, (VALUE, "failure_hidden"), "event=failing_collectives/first", twin=AsksEachHandle),
    of_variant(TrustsFirstOrder, (VALUE, "reduced_early"), "readiness=by_rank/by_step", twin=LaunchesInOneOrder),
    # Gradients may stay in the storage that losses gave them.
    plant(ZeroesInPlace, None, scenarios=(having(f"use={INTO_ONE_STORAGE}"),)),
]  # fmt: skip
