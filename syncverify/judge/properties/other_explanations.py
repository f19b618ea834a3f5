"""Signs of other mistakes that would explain a wrong gradient as well.

A value of few elements may fit two explanations: a quarter of the right gradient lacks three
of four equal micro-batches, or is divided by four ranks. Other gradients tell which one it is.
And a gradient may be wrong because of a line in which ranks meet, or miss each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from syncverify.judge.cause import VAGUE_CAUSES, Cause
from syncverify.judge.decoding import explanations
from syncverify.judge.displaced import displaced
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties.judgement import Judgement, launches_of_step
from syncverify.judge.properties.sent import senders
from syncverify.judge.signs import (
    CauseSign,
    Circumstance,
    Incomplete,
    Meeting,
    Sign,
    Signs,
    Skipped,
)
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.source_lines import SourceLine


def other_signs(
    judgement: Judgement,
    expected: ExpectedGradient,
    observed: torch.Tensor | None,
    cause: Cause,
    *,
    is_proven: bool,
) -> Signs:
    """Return the signs of which each would explain a wrong gradient.

    Args:
        judgement: The run.
        expected: The right gradient.
        observed: The wrong gradient; shape of the local part, or None for no gradient.
        cause: Its cause.
        is_proven: Whether the trace leaves no other cause.
    """
    lines = _lines_behind(judgement, expected, cause)
    if len(expected.ranks) == 1 and observed is not None and not observed.any():
        lines |= {Circumstance.UNSENT_ZEROS}
    if is_proven:
        return lines
    kinds = {each.kind for each in fitting_causes(expected, observed)}
    return lines | {CauseSign(each) for each in kinds - {cause.kind}}


_OF_NO_LAUNCH = frozenset({"not_reduced", "hook_too_early"})


def shown_signs(
    cause: Cause,
    observed: torch.Tensor | None,
    reductions: Iterable[CollectiveLaunch],
) -> Signs:
    """Return the signs that a wrong gradient shows.

    Zeros that nobody sent explain those that are in gradients of a single rank, too.

    Args:
        cause: The cause.
        observed: The wrong gradient; shape of the local part, or None for no gradient.
        reductions: Reductions of the gradient in its step.
    """
    is_zero = observed is not None and not observed.any()
    is_unsent = is_zero and cause.kind in _OF_NO_LAUNCH
    own: set[Sign] = {CauseSign(cause.kind)}
    if is_unsent:
        own.add(Circumstance.UNSENT_ZEROS)
    if cause.kind == "reduced_early":
        own |= {Incomplete(launch.source) for launch in reductions}
    return frozenset(own)


# Kinds that say the same of a gradient with one contribution.
_SAME_OF_ONE = (
    frozenset({"micro_batch_missing", "never_written"}),
    frozenset({"contribution_doubled", "scaled"}),
)
# Kinds that say the same where each rank has one micro-batch.
_SAME_OF_ONE_EACH = (frozenset({"micro_batch_missing", "rank_contribution_missing"}),)


def other_readings(
    expected: ExpectedGradient, observed: torch.Tensor | None, cause: Cause
) -> list[str]:
    """Return texts of other mistakes that give a wrong gradient, one for each kind.

    Factors have one text for each number that they may be. Kinds are left out that say the
    same of so few contributions.
    """
    same = [*(_SAME_OF_ONE_EACH if expected.count <= 1 else ())]
    same += _SAME_OF_ONE if len(expected.terms()) <= 1 else ()
    alike = {cause.kind}.union(*(kinds for kinds in same if cause.kind in kinds))
    texts: dict[str, str] = {}
    for other in fitting_causes(expected, observed):
        is_factor = other.kind == cause.kind == "scaled" and other.text != cause.text
        if is_factor or other.kind not in alike:
            texts.setdefault(other.text if is_factor else other.kind, other.text)
    return [*texts.values()]


def fitting_causes(
    expected: ExpectedGradient, observed: torch.Tensor | None
) -> list[Cause]:
    """List the causes that would give a wrong gradient, each text once, simple ones first."""
    is_known = not expected.reference.rounds
    if not is_known or observed is None or observed.shape != expected.value().shape:
        return []
    found = (
        cause
        for cause, value in explanations(expected)
        if torch.equal(observed, value.to(observed.dtype))
    )
    moved = displaced(expected, observed, is_proof=bool(observed.isfinite().all()))
    causes = {cause.text: cause for cause in found}
    if moved is not None and all(each.kind != moved.kind for each in causes.values()):
        causes[moved.text] = moved
    return [*causes.values()]


def _lines_behind(
    judgement: Judgement, expected: ExpectedGradient, cause: Cause
) -> Signs:
    """Return signs of collectives in which ranks disagree about the parameter."""
    name, rank = expected.spec.name, expected.rank
    if cause.kind == "not_reduced":
        others = (
            launch
            for peer in range(judgement.scenario.mesh.num_ranks)
            for launch in _reductions(judgement, peer, expected.step)
            if name in (senders(judgement.reference, peer, launch) or ())
        )
        return frozenset(Skipped(launch.source) for launch in others)
    if cause.kind in {"misplaced", *VAGUE_CAUSES}:
        return frozenset(_crossings(judgement, rank, expected.step, name))
    return frozenset()


def skips(judgement: Judgement) -> Signs:
    """Return signs of collectives that a peer skips although it finishes the step."""
    ranks = range(len(judgement.run.ranks))
    steps = range(judgement.scenario.num_steps)
    return frozenset(
        Skipped(launch.source)
        for step in steps
        for rank in ranks
        for launch in _reductions(judgement, rank, step)
        for peer in launch.ranks
        if judgement.run.ranks[peer].at("reduced", step) is not None
        and launch.key not in _keys(judgement, peer, step)
    )


def _crossings(
    judgement: Judgement, rank: int, step: int, name: str
) -> Iterator[Meeting]:
    """Yield lines in which other gradients met the parameter's in one collective."""
    for launch in _reductions(judgement, rank, step):
        own = senders(judgement.reference, rank, launch)
        for peer in launch.ranks:
            for theirs in _reductions(judgement, peer, step):
                if theirs.key != launch.key:
                    continue
                met = senders(judgement.reference, peer, theirs)
                is_other = own and met and (name in own) != (name in met)
                if is_other and isinstance(line := launch.source, SourceLine):
                    yield Meeting(line.path, line.number)


def _reductions(judgement: Judgement, rank: int, step: int) -> list[CollectiveLaunch]:
    launches = launches_of_step(judgement.run.ranks[rank].trace, step)
    return [launch for launch in launches if launch.reduces]


def _keys(judgement: Judgement, rank: int, step: int) -> set[object]:
    launches = launches_of_step(judgement.run.ranks[rank].trace, step)
    return {launch.key for launch in launches}
