"""The property of bucket sizes: a bucket of several gradients fits the cap."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from syncverify.judge.cause import Mistake
from syncverify.judge.evidence import OverCap
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.property import Property
from syncverify.judge.properties.sent import senders
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Violation, finding
from syncverify.scenario.layout import local_shape, reduce_axes


def keeps_a_cap(judgement: Judgement) -> bool:
    """The subject promises to keep the bucket cap, and two gradients or more are reduced."""
    scenario, promises = judgement.scenario, judgement.reference.capabilities
    reduced = [s for s in scenario.trainable if reduce_axes(scenario.mesh, s)]
    return promises.keeps_bucket_cap and len(reduced) > 1


def bucket_fits_the_cap(judgement: Judgement) -> Iterator[Violation]:
    """Gradients that are reduced together fit the bucket cap, which counts bytes of one rank.

    For all ranks and reductions that send several gradients: their local parts, in the
    dtypes of the gradients, have no more bytes together than the cap. Judged for
    subjects that declare `keeps_bucket_cap`.

    Catches: a cap that is ignored, or counted in elements, or in bytes of all ranks. Does not
    judge small buckets, padding and other wire formats, nor a large gradient alone.
    """
    if not judgement.reference.capabilities.keeps_bucket_cap:
        return
    cap = judgement.scenario.bucket_cap_bytes
    for rank, rank_run in enumerate(judgement.run.ranks):
        for launch in launches_of(rank_run.trace):
            if not launch.reduces:
                continue
            names = senders(judgement.reference, rank, launch) or ()
            num_bytes = sum(_gradient_bytes(judgement, name, rank) for name in names)
            numel = sum(_gradient_numel(judgement, name, rank) for name in names)
            # More elements than are sent: gradients of equal values have one place.
            if len(names) > 1 and num_bytes > cap and numel <= launch.numel:
                summary = (
                    f"{launch.operation} at {launch.source} ({launch.moment}) has gradients of "
                    f"{', '.join(names)} with {num_bytes} bytes together; the cap is {cap}"
                )
                evidence = OverCap(
                    rank=rank, named=(launch.source,), bytes=num_bytes, cap=cap
                )
                yield finding("over_cap", summary, rank, None, evidence)


BUCKET_FITS_THE_CAP = Property(
    bucket_fits_the_cap,
    order=180,
    applies=keeps_a_cap,
    example="a cap that is ignored, or that counts elements as bytes, where the contract promises `keeps_bucket_cap`",
    needs_data=False,
    promise="keeps_bucket_cap",
    causes=(
        Mistake(
            "over_cap",
            "a bucket is larger than its cap",
            "close a bucket before a gradient that would bring it over the cap; count bytes"
            " of local parts",
        ),
    ),
)


def _gradient_bytes(judgement: Judgement, name: str, rank: int) -> int:
    """Return the size of a rank's part of a gradient."""
    scenario = judgement.scenario
    spec = next(spec for spec in scenario.parameters if spec.name == name)
    width: int = getattr(torch, spec.effective_grad_dtype).itemsize
    return _gradient_numel(judgement, name, rank) * width


def _gradient_numel(judgement: Judgement, name: str, rank: int) -> int:
    """Return the number of elements of a rank's part of a gradient."""
    scenario = judgement.scenario
    spec = next(spec for spec in scenario.parameters if spec.name == name)
    return math.prod(local_shape(scenario.mesh, spec, rank))
