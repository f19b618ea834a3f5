"""Defects that one large number shows, and right twins; each is right in small scenarios."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.in_wait import ReducesInWait
from syncverify.bugbank.bases.placements import local, reduce_groups
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.quality.planted.planted import built_in, planted, right

BITS = 32
BUCKET_BITS = 16
KIB = 1024
CHUNK = 1024
WARM_UP = 5
COUNTER = 8


def with_gradient(word: str) -> Scenario:
    """Return a program with one gradient of a kind beside another one."""
    special = ParameterSpec("p0", (3,), ("R",), gradient=word)
    other = ParameterSpec("p1", (2,), ("R",))
    return Scenario(MeshSpec((3,), ("dp",)), (special, other), (2, 1), 1 << 20)


class MasksGradients(ViewBuckets):
    """A word of 32 bits says which gradients of a bucket came."""

    @override
    def bind(self) -> None:
        self.masks: dict[Bucket, int] = {}
        super().bind()

    @override
    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        bucket.counts[parameter] += 1
        if bucket.counts[parameter] == self.required:
            place = [p is parameter for p in bucket.parameters].index(True)
            mask = self.masks.get(bucket, 0) | 1 << place % BITS
            self.masks[bucket] = mask
            if mask == (1 << min(BITS, len(bucket.parameters))) - 1:
                self.masks[bucket] = 1 << BITS  # never complete again in this step
                self.launch(bucket)

    @override
    def zero_grad(self) -> None:
        self.masks.clear()
        super().zero_grad()


class SendsWholeChunks(ReducesInWait):
    """A bucket of more than one chunk is cut into chunks, and the rest stays behind."""

    chunk = CHUNK

    @override
    def launch(self, bucket: Bucket) -> None:
        whole, numel = bucket.buffer, bucket.buffer.numel()
        if numel > self.chunk:
            bucket.buffer = whole[: numel // self.chunk * self.chunk]
        super().launch(bucket)

    @override
    def finish(self, bucket: Bucket) -> None:
        super().finish(bucket)
        bucket.buffer = _whole(bucket.buffer)


class SendsWholeLargeChunks(SendsWholeChunks):
    """Cuts a bucket of more than 64 Ki elements into chunks of 64 Ki, and leaves the rest."""

    chunk = 64 * KIB


class SendsLargeOnesNarrow(ReducesInWait):
    """Buckets of float32 above 64 KiB are sent as bfloat16."""

    most_bytes = 64 * KIB

    @override
    def launch(self, bucket: Bucket) -> None:
        whole = bucket.buffer
        is_large = whole.nbytes > self.most_bytes and whole.dtype == torch.float32
        if not (bucket.groups and is_large):
            super().launch(bucket)
            return
        sent = whole.to(torch.bfloat16)
        dist.all_reduce(sent, group=bucket.groups[0])
        whole.copy_(sent)

    @override
    def finish(self, bucket: Bucket) -> None:
        super().finish(bucket)
        is_large = bucket.buffer.nbytes > self.most_bytes
        if is_large and bucket.buffer.dtype == torch.float32:
            for group in bucket.groups[1:]:
                dist.all_reduce(bucket.buffer, group=group)


class SendsMebibytesNarrow(SendsLargeOnesNarrow):
    """Buckets of float32 of a MiB and more are sent as bfloat16."""

    most_bytes = 1024 * KIB - 1


class SendsLargeOnesWhole(SendsLargeOnesNarrow):
    """Correct: all buckets are sent as they are."""

    most_bytes = 2**40


class MasksBuckets(ReducesInWait):
    """A word of 16 bits says which buckets are in flight."""

    bits = BUCKET_BITS

    @override
    def wait(self) -> None:
        for bucket in self.buckets:
            self.launch(bucket)
        in_flight = 0
        for place in range(len(self.buckets)):
            in_flight |= 1 << place % self.bits
        for place, bucket in enumerate(self.buckets):
            if in_flight >> place & 1:
                self.finish(bucket)


class MasksManyBuckets(MasksBuckets):
    """Correct: the word has more bits than there are buckets."""

    bits = 2**16


class FoldsThreeAndOne(PlainGrads):
    """Adds up the first three gathered parts and the last one."""

    capabilities = Capabilities(varying_accumulations=True)

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        own = local(gradient)
        for group in reduce_groups(gradient):  # type: ignore[arg-type]  # reads placements
            parts = [torch.empty_like(own) for _ in range(group.size())]
            dist.all_gather(parts, own.contiguous(), group=group)
            own.copy_(torch.stack(self.folded(parts)).sum(0))

    def folded(self, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the parts to add up."""
        return [*parts[:3], *parts[3:][-1:]]


class FoldsAll(FoldsThreeAndOne):
    """Correct: adds up all parts."""

    @override
    def folded(self, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        return parts


class WrapsAfterFirstStep(PlainGrads):
    """Step 0 learns the order of gradients; later ones keep three bits of each place."""

    capabilities = Capabilities(varying_accumulations=True)

    @override
    def bind(self) -> None:
        self.is_learned = False

    @override
    def wait(self) -> None:
        places = range(len(self.parameters))
        for place in places:
            parameter = self.parameters[place % COUNTER if self.is_learned else place]
            if parameter.grad is not None:
                self.reduce(parameter.grad)
        self.is_learned = True


class SkipsAfterWarmUp(ReducesInWait):
    """Later steps take a short way, which leaves out the last bucket."""

    warm_up = WARM_UP

    @override
    def bind(self) -> None:
        self.num_steps = 0
        super().bind()

    @override
    def order(self) -> list[Bucket]:
        self.num_steps += 1
        return self.buckets if self.num_steps <= self.warm_up else self.buckets[:-1]


class SkipsFromTenthStep(SkipsAfterWarmUp):
    """The short way starts after ten steps, and leaves out the last bucket."""

    warm_up = 10


class CountsInThreeBits(ViewBuckets):
    """Counts wrap around at eight, on both sides of the comparison."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        agreed = self.required % COUNTER
        return all(bucket.counts[p] % COUNTER == agreed for p in bucket.parameters)


class KnowsTwoGroups(ReducesInWait):
    """Groups of parameters are those with weight decay and those without."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        known = {id(p) for group in self.param_groups[:2] for p in group}
        for parameters in super().plan():
            if id(parameters[0]) in known:
                yield parameters


@planted((), scenarios=(with_gradient("zero"),), elsewhere=(with_gradient("finite"),))
class SkipsZeros(PlainGrads):
    """A gradient without any element other than zero is not sent."""

    capabilities = Capabilities(varying_accumulations=True)

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if self.is_sent(local(gradient)):
            super().reduce(gradient)

    def is_sent(self, gradient: torch.Tensor) -> bool:
        """Tell whether this rank sends a gradient."""
        return bool(gradient.any())


@right(with_gradient("zero"))
class SendsZeros(SkipsZeros):
    """Correct: each rank sends each gradient."""

    @override
    def is_sent(self, gradient: torch.Tensor) -> bool:
        return True


def _whole(part: torch.Tensor) -> torch.Tensor:
    """Return the flat buffer that a part begins."""
    numel = part.untyped_storage().nbytes() // part.element_size()
    return part.as_strided((numel,), (1,), 0)


OTHERS = built_in("synchronizer", "ddp", scenarios=(with_gradient("zero"),))
