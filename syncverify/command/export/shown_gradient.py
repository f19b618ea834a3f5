"""The gradient that a script shows: a moment of a run, and the right value there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import (
    ExpectedGradient,
    local_gradient,
    reduced_gradient,
)
from syncverify.judge.violation import Violation
from syncverify.playing.program.training_program import Observe
from syncverify.scenario.specs import ParameterSpec
from syncverify.trace.run import Observation


@dataclass(frozen=True, slots=True)
class ShownGradient:
    """The gradient of one parameter at one moment, on all ranks."""

    spec: ParameterSpec
    moment: Observe
    expected: Mapping[int, torch.Tensor]  # float64, by global rank; judged ranks only
    may_be_missing: bool  # whether a missing gradient is also right
    is_wrong: bool  # on some rank


def wrong_gradient_of(
    judgement: Judgement, violation: Violation
) -> ShownGradient | None:
    """Return the gradient that a violation is about, or else the first wrong one of the run, if any."""
    moment = violation.evidence.step, violation.evidence.micro_batch
    wrong = [each for each in shown_gradients(judgement) if each.is_wrong]
    meant = (
        each
        for each in wrong
        if (each.moment.step, each.moment.micro_batch) == moment
        and each.spec.name in violation.parameters
    )
    return next(meant, wrong[0] if wrong else None)


def shown_gradients(judgement: Judgement) -> Iterator[ShownGradient]:
    """Yield the gradients of a run that are judged, in the order of the training program."""
    observations = (rank.observations for rank in judgement.run.ranks)
    for observed in zip_longest(*observations):  # a fault ends some ranks early
        first = next(each for each in observed if each is not None)
        moment = Observe(first.point, first.step, first.micro_batch)
        for spec in judgement.scenario.parameters:
            pairs = {
                rank: (expected, each)
                for rank, each in enumerate(observed)
                if each and (expected := _expected(judgement, spec, rank, each))
            }
            if pairs:
                yield ShownGradient(
                    spec,
                    moment,
                    {rank: expected.value() for rank, (expected, _) in pairs.items()},
                    all(expected.may_be_none() for expected, _ in pairs.values()),
                    any(_is_wrong(*pair) for pair in pairs.values()),
                )


def _is_wrong(expected: ExpectedGradient, observation: Observation) -> bool:
    gradient = observation.gradients[expected.spec.name]
    if not expected.count:  # no micro-batch contributes: None and zeros are right
        return gradient is not None and bool(gradient.any())
    return explain(expected, gradient) is not None


def _expected(
    judgement: Judgement, spec: ParameterSpec, rank: int, observation: Observation
) -> ExpectedGradient | None:
    """Return the right gradient of a rank at an observation; None if no property judges it."""
    reference, step = judgement.reference, observation.step
    if judgement.was_refused(step):
        return None
    num_own = 0  # micro-batches of this rank alone
    match observation.point if spec.requires_grad else "":
        case "reduced":
            owned = judgement.run.ranks[rank].owned
            is_owned = owned is not None and spec.name in owned
            if reference.capabilities.gradients == "owner" and not is_owned:
                return None
            return reduced_gradient(judgement.reference, spec, rank, step)
        case "accumulated":
            # `.grad` need not hold the sum of the micro-batches so far.
            reduces_each = reference.capabilities.reduces_each_micro_batch
            if reduces_each or observation.gradients[spec.name] is None:
                return None
            num_own = 1 + (observation.micro_batch or 0)
        case "unbound":  # after a plain backward
            num_own = 1
    return local_gradient(reference, spec, rank, step, num_own)
