"""What else may be behind a wrong gradient: circumstances of the run, and other mistakes.

Circumstances are signs of Note [One defect or two] in `violation.py`. A wrong step that is like a right
one shows itself that state was left over: whatever else is seen after right steps alone is likely of
that state. Where ranks may have put different gradients into one bucket, no value tells a cause.

Note [Several readings]
    A value of few elements may fit two explanations: a quarter of the right gradient lacks three
    of four equal micro-batches, or is divided by four ranks. Other gradients tell which one it is.
    And a gradient may be wrong because of a line in which ranks meet, or miss each other.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from syncverify.judge.approximate_causes import displaced
from syncverify.judge.causes import VAGUE_CAUSES
from syncverify.judge.decoding import explanations
from syncverify.judge.evidence import WrongGradient
from syncverify.judge.properties.judgement import Judgement, launches_of_step
from syncverify.judge.reference import ExpectedGradient
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import (
    Cause,
    CauseSign,
    Circumstance,
    Clues,
    Incomplete,
    Meeting,
    Sign,
    Signs,
    Skipped,
    Violation,
)
from syncverify.scenario import step_plan
from syncverify.scenario.feature_table import EVENTS, PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.trace.records import CollectiveKey, CollectiveLaunch
from syncverify.trace.source_lines import lines_among

# Places of gradients: parameter and first element; None where some value is not known.
_Places = frozenset[tuple[str, int]] | None
_OF_NO_LAUNCH = frozenset({"not_reduced", "hook_too_early"})
# Kinds that say the same of a gradient with one contribution.
_SAME_OF_ONE = (
    frozenset({"micro_batch_missing", "never_written"}),
    frozenset({"contribution_doubled", "scaled"}),
)
# Kinds that say the same where each rank has one micro-batch.
_SAME_OF_ONE_EACH = (frozenset({"micro_batch_missing", "rank_contribution_missing"}),)


def with_circumstances(
    judgement: Judgement, findings: Iterable[Violation]
) -> Iterator[Violation]:
    """Add the circumstances of each finding, whose evidence has its step, to its signs.

    Where the trace proves a cause, other contents of a bucket are none.
    """
    found, known = list(findings), dict[int, tuple[Signs, _Contents]]()
    steps = [each.evidence.step or 0 for each in found]
    hooked = [e for e in launches_of(judgement.records) if e.in_tensor_hook]
    for step in {*steps}:
        signs = after_earlier_steps(judgement.scenario, step, min(steps))
        if any(launch.moment.step == step for launch in hooked):
            signs |= {Circumstance.IN_TENSOR_HOOK}
        known[step] = signs, _Contents(judgement, step)
    for each, step in zip(found, steps, strict=True):
        (signs, contents), evidence = known[step], each.evidence
        if isinstance(evidence, WrongGradient):
            name, rank = evidence.parameter, each.ranks[0]
            if meeting := contents.meeting(name, rank):
                signs |= {Circumstance.OTHER_CONTENTS}
                shown = replace(
                    evidence, explanation=meeting, is_proven=True, readings=()
                )
                place = f"gradient of {name!r} on rank {rank}, step {step}"
                yield replace(
                    each,
                    cause="bucket_mismatch",
                    summary=f"{place} is wrong: {meeting}",
                    evidence=shown,
                    clues=Clues.of_finding(each.clues.shows, signs),
                )
                continue
            # The result may be that of other gradients.
            if contents.may_differ and each.cause == "result_dropped":
                evidence = replace(evidence, is_proven=False)
            if contents.may_differ and not evidence.is_proven:
                signs |= {Circumstance.OTHER_CONTENTS}
        signs = signs.union(*each.clues.explained_by)
        clues = Clues.of_finding(each.clues.shows, signs)
        yield replace(each, evidence=evidence, clues=clues)


def after_earlier_steps(scenario: Scenario, step: int, first_wrong: int) -> Signs:
    """Return the signs of a finding that tell of the steps before it."""
    if not step or first_wrong == 0:
        return frozenset()
    if any(EVENTS[scenario.step_event(before)].rebinds for before in range(step)):
        return frozenset({Circumstance.AFTER_REBINDING, Circumstance.AFTER_RIGHT_STEP})
    return frozenset({Circumstance.AFTER_RIGHT_STEP})


def after_like_step(scenario: Scenario, step: int) -> Signs:
    """Return the sign that a step is unlike an earlier one for no reason of the scenario.

    Only for a step that is wrong where the earlier ones, whose program is the same, are right.
    """
    alike = any(is_like(scenario, step, earlier) for earlier in range(step))
    return frozenset({Circumstance.AFTER_RIGHT_STEP} if alike else ())


def is_like(scenario: Scenario, step: int, earlier: int) -> bool:
    """Tell whether two steps are alike, and no step up to the later one has an event."""
    counts = {step_plan.num_agreed_micro_batches(scenario, e) for e in (step, earlier)}
    events = {scenario.step_event(at) for at in range(step + 1)}
    uses = {spec.used for spec in scenario.parameters}
    return len(counts) == 1 and events == {PLAIN} and uses == {"always"}


class _Contents:
    """The places of gradients in the reductions of one step, on all ranks, by their values.

    A launch of `.grad` itself names its gradients. A copy of them has no name, but values are
    known (Note [Names by value] in `sent.py`). Equal values may meet by chance, so places are
    compared only to explain a gradient that is wrong, and never to find one.
    """

    def __init__(self, judgement: Judgement, step: int) -> None:
        self._places: dict[CollectiveKey, dict[int, _Places]] = {}
        self._launches: dict[CollectiveKey, CollectiveLaunch] = {}
        for rank in range(len(judgement.run.ranks)):
            for launch in _reductions(judgement, rank, step):
                rounds = judgement.reference.rounds
                found = None if rounds else judgement.sent(rank, launch).places
                self._places.setdefault(launch.key, {})[rank] = found
                self._launches.setdefault(launch.key, launch)

    @property
    def may_differ(self) -> bool:
        """Tell whether some rank may have another gradient at a place than its peers."""
        known = [{*places.values()} for places in self._places.values()]
        return any(None in places or len(places) > 1 for places in known)

    def meeting(self, name: str, rank: int) -> str:
        """Tell, in words, where a gradient meets another one; "" if it does not."""
        for key, places in self._places.items():
            for peer, theirs in places.items():
                for place in sorted(_crossed(name, places.get(rank), theirs)):
                    return (
                        f"on rank {rank} it is sent from element {place} of a bucket, and on "
                        f"rank {peer} it is not, in {self._launches[key]}"
                    )
        return ""


def _crossed(name: str, own: _Places, theirs: _Places) -> Iterator[int]:
    """Yield the places of a gradient at which a peer has another one.

    Where both may have one and the same gradient, a value is equal by chance.
    """
    for parameter, start in own or ():
        mine = {one for one, at in own or () if at == start}
        others = {other for other, at in theirs or () if at == start}
        if parameter == name and others and not mine & others:
            yield start


def other_signs(
    judgement: Judgement,
    expected: ExpectedGradient,
    observed: torch.Tensor | None,
    cause: Cause,
    *,
    is_proven: bool,
) -> Signs:
    """Return the signs of which each would explain a wrong gradient.

    `is_proven` says that the trace leaves no cause but the given one.
    """
    lines = _lines_behind(judgement, expected, cause)
    if len(expected.ranks) == 1 and observed is not None and not observed.any():
        lines |= {Circumstance.UNSENT_ZEROS}
    if is_proven:
        return lines
    kinds = {each.kind for each in fitting_causes(expected, observed)}
    return lines | {CauseSign(each) for each in kinds - {cause.kind}}


def shown_signs(
    cause: Cause, observed: torch.Tensor | None, reductions: Iterable[CollectiveLaunch]
) -> Signs:
    """Return the signs that a wrong gradient shows.

    Zeros that nobody sent explain those that are in gradients of a single rank, too.
    `reductions` are those of the gradient in its step.
    """
    own: set[Sign] = {CauseSign(cause.kind)}
    if cause.kind in _OF_NO_LAUNCH and observed is not None and not observed.any():
        own.add(Circumstance.UNSENT_ZEROS)
    if cause.kind == "reduced_early":
        own |= {Incomplete(launch.source) for launch in reductions}
    return frozenset(own)


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
    causes = {
        cause.text: cause
        for cause, value in explanations(expected)
        if torch.equal(observed, value.to(observed.dtype))
    }
    moved = displaced(expected, observed, is_proof=bool(observed.isfinite().all()))
    if moved is not None and all(each.kind != moved.kind for each in causes.values()):
        causes[moved.text] = moved
    return [*causes.values()]


def _lines_behind(
    judgement: Judgement, expected: ExpectedGradient, cause: Cause
) -> Signs:
    """Return signs of collectives in which ranks disagree about the parameter."""
    name, rank, step = expected.spec.name, expected.rank, expected.step
    if cause.kind == "not_reduced":
        return frozenset(
            Skipped(launch.source)
            for peer in range(judgement.scenario.mesh.num_ranks)
            for launch in _reductions(judgement, peer, step)
            if name in (judgement.sent(peer, launch).names or ())
        )
    # Lines in which other gradients met the parameter's in one collective.
    meetings = set[Sign]()
    is_moved = cause.kind in {"misplaced", *VAGUE_CAUSES}
    for launch in _reductions(judgement, rank, step) if is_moved else ():
        own, line = judgement.sent(rank, launch).names, launch.source
        for peer in launch.ranks:
            for theirs in _reductions(judgement, peer, step):
                met = judgement.sent(peer, theirs).names
                is_other = own and met and (name in own) != (name in met)
                if theirs.key == launch.key and is_other:
                    meetings |= {Meeting(e.path, e.number) for e in lines_among([line])}
    return frozenset(meetings)


def skips(judgement: Judgement) -> Signs:
    """Return signs of collectives that a peer skips although it finishes the step."""
    ranks, found = range(len(judgement.run.ranks)), set[Sign]()
    for step in range(judgement.scenario.num_steps):
        issued = {
            rank: {each.key for each in launches_of_step(own.trace, step)}
            for rank, own in enumerate(judgement.run.ranks)
            if own.at("reduced", step) is not None
        }
        found |= {
            Skipped(launch.source)
            for rank in ranks
            for launch in _reductions(judgement, rank, step)
            for peer in launch.ranks
            if peer in issued and launch.key not in issued[peer]
        }
    return frozenset(found)


def _reductions(judgement: Judgement, rank: int, step: int) -> list[CollectiveLaunch]:
    launches = launches_of_step(judgement.run.ranks[rank].trace, step)
    return [launch for launch in launches if launch.reduces]
