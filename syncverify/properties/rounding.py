"""The property of gradients that are no whole numbers."""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.properties.judgement import Finding, Judgement
from syncverify.properties.values import after_wait, compare
from syncverify.vocabulary import PLAIN


def gradient_is_within_rounding(judgement: Judgement) -> Iterator[Finding]:
    """After `wait()`, a real module's gradient is as near naive DDP's as rounding allows.

    For all ranks, steps and trainable parameters of scenarios that train a module, be they
    reduced or not: each element of the local gradient differs from the exact sum (or mean)
    by no more than sums in any order may. The bound is derived, not chosen: see Note [What
    rounding can do] in `syncverify/rounding.py`.

    Catches: what only real gradients show, such as a wire format that keeps whole numbers
    and little else, or gradients whose memory format is not their parameter's; and all that
    is wrong with whole numbers. Does not promise the nearest number: that is asked of sums
    of products, whose gradients are exact.
    """
    if judgement.scenario.module == PLAIN:
        return
    for is_reduced in (True, False):
        yield from compare(judgement, after_wait(judgement, reduced=is_reduced))
