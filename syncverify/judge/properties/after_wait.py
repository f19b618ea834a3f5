"""The gradients that `wait()` leaves behind, each beside the right value, and their owners.

Note [The owner of a gradient]
    A subject with `gradients="owner"` in its contract (`dist.reduce`, ZeRO-1) leaves the right
    gradient of a parameter on one rank of each set of replicas, the owner, and any value on the
    other ranks. Only owners are judged.

    A subject with a method `owner()` names the owners. Else the owner is concluded from the
    values: the rank with a right gradient in most steps. If some rank is right in all steps, the
    concluded owner is, so no right subject is accused.
    A wrong one passes where a run cannot tell: in a run of one step, any owner is the same
    owner in all steps.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.evidence import Evidence
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import ExpectedGradient, reduced_gradient
from syncverify.judge.rounding import explain_rounded
from syncverify.judge.violation import Violation, finding
from syncverify.plain_text import named
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.specs import ParameterSpec
from syncverify.trace.run import Observation

AfterWait = tuple[ExpectedGradient, Observation]


def owes_reduction(judgement: Judgement) -> bool:
    """Tell whether a trainable parameter is replicated over two ranks or more."""
    scenario = judgement.scenario
    return any(reduce_axes(scenario.mesh, spec) for spec in scenario.trainable)


def each_after_wait(
    judgement: Judgement,
) -> Iterator[tuple[int, Observation, ParameterSpec]]:
    """Yield rank, observation and parameter for each `wait()`; steps come first."""
    for step in range(judgement.scenario.num_steps):
        for spec in judgement.scenario.parameters:
            for rank in range(judgement.scenario.mesh.num_ranks):
                observation = judgement.run.ranks[rank].at("reduced", step)
                if observation is not None:
                    yield rank, observation, spec


def after_wait(judgement: Judgement, *, reduced: bool) -> Iterator[AfterWait]:
    """Yield expected and observed gradients of each `wait()` that have to be right."""
    if reduced and judgement.has_owners:
        judged = [pair for each in _replicas(judgement) for pair in each.judged()]
        yield from sorted(judged, key=lambda pair: pair[0].step)
    else:
        yield from on_all_ranks(judgement, reduced=reduced)


def on_all_ranks(judgement: Judgement, *, reduced: bool) -> Iterator[AfterWait]:
    """Yield expected and observed gradients of each `wait()`, reduced ones or others."""
    mesh, reference = judgement.scenario.mesh, judgement.reference
    for rank, observation, spec in each_after_wait(judgement):
        if not spec.requires_grad or bool(reduce_axes(mesh, spec)) != reduced:
            continue
        expected = reduced_gradient(reference, spec, rank, observation.step)
        yield expected, observation


def wrong_owners(judgement: Judgement) -> Iterator[Violation]:
    """Find replicas without an owner, and right gradients on ranks that are not the owner.

    Nothing is found of subjects that leave the right gradient on all ranks.
    """
    if judgement.has_owners:
        for each in _replicas(judgement):
            yield from each.findings()


@dataclass(slots=True)
class _Replicas:
    """One parameter on the ranks that hold the same part of it."""

    parameter: str
    ranks: tuple[int, ...]
    # By step and rank.
    seen: dict[int, dict[int, AfterWait]] = field(default_factory=dict)
    # Ranks with the right gradient, by step.
    right: dict[int, set[int]] = field(default_factory=dict)
    # The ranks that are judged; empty if all ranks said that they own nothing.
    owners: frozenset[int] = frozenset()

    def judged(self) -> Iterator[AfterWait]:
        """Yield the gradients of owners, without those that are right on another rank."""
        for step, by_rank in self.seen.items():
            for rank in sorted(self.owners & by_rank.keys()):
                if rank in self.right[step] or not self.right[step]:
                    yield by_rank[rank]

    def findings(self) -> Iterator[Violation]:
        """Find a set without an owner, and right gradients on ranks that are not the owner."""
        name = self.parameter
        if not self.owners:
            text = f"expected an owner of {name!r} among ranks {list(self.ranks)}, but owner() is false on each"
            evidence = Evidence(facts={"replicas": self.ranks, "right_on": ()})
            yield finding("no_owner", text, self.ranks[0], name, evidence)
        for step, by_rank in self.seen.items():
            others = tuple(sorted(self.right[step]))
            wrong = self.owners & by_rank.keys() - self.right[step]
            for rank in sorted(wrong if others else ()):
                text = (
                    f"gradient of {name!r} is right on {named('rank', others)} in step {step}, "
                    f"and not on its owner, rank {rank}"
                )
                facts = {"replicas": self.ranks, "right_on": others, "owner": rank}
                evidence = Evidence(step=step, facts=facts)
                yield finding("wrong_owner", text, rank, name, evidence)


def _replicas(judgement: Judgement) -> list[_Replicas]:
    cause_of = explain_rounded if judgement.reference.rounds else explain
    found: dict[tuple[str, tuple[int, ...]], _Replicas] = {}
    for expected, observation in on_all_ranks(judgement, reduced=True):
        name, step = expected.spec.name, expected.step
        each = found.setdefault((name, expected.ranks), _Replicas(name, expected.ranks))
        each.seen.setdefault(step, {})[expected.rank] = expected, observation
        each.right.setdefault(step, set())
        if cause_of(expected, observation.gradients[name]) is None:
            each.right[step].add(expected.rank)
    for each in found.values():
        each.owners = _owners(judgement, each)
    return list(found.values())


def _owners(judgement: Judgement, replicas: _Replicas) -> frozenset[int]:
    """Return the owners by `owner()`, or the one that Note [The owner of a gradient] names."""
    owned = {rank: judgement.run.ranks[rank].owned for rank in replicas.ranks}
    name, num_own = replicas.parameter, Counter[int]()
    if None not in owned.values():
        return frozenset(rank for rank, names in owned.items() if name in (names or ()))
    num_right = Counter(rank for ranks in replicas.right.values() for rank in ranks)
    # A rank that was sent nothing, and has what its own backwards left, is an unlikely owner: its
    # gradient explains less.
    for expected, observation in chain(*(e.values() for e in replicas.seen.values())):
        observed, own = observation.gradients[name], expected.part(expected.rank)
        is_own = observed is None or torch.equal(observed.to(own.dtype), own)
        num_own[expected.rank] += is_own
    ranking = sorted(replicas.ranks, key=lambda r: (-num_right[r], num_own[r], r))
    return frozenset(ranking[:1])
