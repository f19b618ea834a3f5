"""The property of parameters after `unbind()`."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.evidence import Event, Evidence, Mistimed, ended
from syncverify.judge.properties.judgement import Judgement, Property
from syncverify.judge.reference import local_gradient
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Violation, finding
from syncverify.plain_text import counted, named
from syncverify.playing.program.model import start_value
from syncverify.scenario.layout import contributing_ranks, is_managed
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.scenario.step_plan import is_born, is_frozen
from syncverify.trace.run import Leftovers


@Property(
    order=190,
    condition="An `unbind()` returned.",
    applies=lambda seen: any(rank.leftovers is not None for rank in seen.run.ranks),
    example="hooks, buffers and settings that survive `unbind()`, and hooks of others that do not",
    needs_data=False,
)
def unbind_restores_parameters(judgement: Judgement) -> Iterator[Violation]:
    """After `unbind()`, parameters behave as if they had never been managed.

    For all ranks: no hook is left on a parameter or called by a further backward, and the
    training program's own hooks are still there. No two gradients or parameters came to
    share a storage. No parameter keeps a tensor as a new attribute, or changed its value or
    `requires_grad`; replicas that are unequal at `bind()` are made equal before gradients are
    read for the first time: all of them, or none. A further backward gives local gradients and
    issues no collective. Settings of the process are as they were (defaults of torch, environment, hooks on all
    modules), and no random generator was seeded or set back to an earlier state.

    Catches: hooks that survive, buffers kept alive by gradients, late reductions. Does not
    promise that the subject gives back its process groups, threads and streams. A subject
    that owns the parameters may keep them in one storage.
    """
    for rank in range(judgement.scenario.mesh.num_ranks):
        yield from _leftovers(judgement, rank)
        for record in launches_of(judgement.run.ranks[rank].trace):
            if record.moment.phase == "after_unbind":
                summary = f"rank {rank} issued a collective after unbind(): {record}"
                evidence = Mistimed(rank=rank, events=(Event("", record),))
                yield finding("collective_after_unbind", summary, rank, None, evidence)
        yield from _plain_backward(judgement, rank)
    yield from _raised_by_hook_left(judgement)
    yield from _left_unequal(judgement)


def _finding(cause: str, summary: str, rank: int, name: str | None = None) -> Violation:
    return finding(cause, summary, rank, name, Evidence(rank=rank))


def _leftovers(judgement: Judgement, rank: int) -> Iterator[Violation]:
    left = judgement.run.ranks[rank].leftovers
    if left is None:
        return
    for name, count in left.hooks.items():
        are = "is" if count == 1 else "are"
        text = f"{counted(count, 'hook')} {are} left on {name!r} of rank {rank} after unbind()"
        evidence = Evidence(rank=rank, facts={"hooks": count})
        yield finding("hook_left", text, rank, name, evidence)
    for name in left.shared_gradients:
        text = f"the gradient of {name!r} still lies in a shared buffer after unbind()"
        yield _finding("buffer_left", text, rank, name)
    for name in left.changed:
        text = f"{name!r} of rank {rank} changed its value or requires_grad"
        yield _finding("parameter_changed", text, rank, name)
    for line in left.called if not left.hooks else ():
        text = f"a backward on rank {rank} after unbind() still calls {line}"
        evidence = Evidence(rank=rank, named=(line,), facts={"line": line})
        yield finding("hook_left", text, rank, None, evidence)
    for name in left.lost_hooks:
        text = f"unbind() removed a hook on {name!r} of rank {rank} that was there before bind()"
        yield _finding("hook_lost", text, rank, name)
    for name, attributes in left.attributes.items():
        kept = ", ".join(f"`{attribute}`" for attribute in attributes)
        text = (
            f"{name!r} of rank {rank} keeps a tensor in {kept} after unbind(), and with it "
            "the memory of that tensor"
        )
        yield _finding("attribute_left", text, rank, name)
    if not judgement.reference.capabilities.owns_parameters:
        for name in left.shared_parameters:
            text = (
                f"{name!r} of rank {rank} lies in one storage with other parameters after "
                "unbind(), which were apart before"
            )
            yield _finding("parameters_joined", text, rank, name)
    yield from _of_process(judgement, left, rank)


def _of_process(
    judgement: Judgement, left: Leftovers, rank: int
) -> Iterator[Violation]:
    for words in (*left.settings, *left.thread_settings):
        text = f"the subject left a setting of the process changed: {words}"
        yield _finding("setting_changed", text, rank)
    for name in left.reseeded:
        text = f"the subject seeded {name}, so the training program's random numbers repeat"
        yield _finding("generator_seeded", text, rank)
    # A seeded generator repeats numbers too. Ranks of one process share it, so it repeats on all.
    every = (rank_run.leftovers for rank_run in judgement.run.ranks)
    seeded = {name for each in every if each is not None for name in each.reseeded}
    for name in (each for each in left.repeating if each not in seeded):
        text = (
            f"the subject set {name} back to an earlier state, so rank {rank} drew a "
            "number of an earlier step again"
        )
        yield _finding("generator_rewound", text, rank)


def _raised_by_hook_left(judgement: Judgement) -> Iterator[Violation]:
    """Find a hook that plain backward after `unbind()` called, and that raised."""
    fault = judgement.run.fault
    if fault is None or not fault.is_of_hook_left:
        return
    if judgement.refused_step is None or not fault.is_clear:
        summary = f"a plain backward after unbind() still calls a hook: {fault.summary}"
        for rank in fault.ranks:
            evidence = replace(ended(fault), rank=rank)
            yield finding("hook_left", summary, rank, None, evidence)


def _plain_backward(judgement: Judgement, rank: int) -> Iterator[Violation]:
    step = judgement.scenario.num_steps
    observation = judgement.run.ranks[rank].at("unbound", step)
    if observation is None:
        return
    for spec in judgement.scenario.trainable:
        expected = local_gradient(judgement.reference, spec, rank, step, count=1)
        cause = explain(expected, observation.gradients[spec.name])
        if cause is not None:
            wrong = f"{spec.name!r} of rank {rank} a wrong gradient: {cause.text}"
            summary = f"a backward after unbind() gives {wrong}"
            evidence = Evidence(rank=rank, facts={"explanation": cause.text})
            yield finding("backward_not_plain", summary, rank, spec.name, evidence)


def _left_unequal(judgement: Judgement) -> Iterator[Violation]:
    """Find replicas that a subject left unequal, though it made others equal.

    DDP makes them equal in `bind()`, and torch's `replicate` in the first forward.
    """
    bound = [e.bound for e in judgement.run.ranks if e.bound is not None]
    if len(bound) < len(judgement.run.ranks) or not judgement.run.carries_data:
        return
    scenario, are_made_equal = judgement.scenario, False
    unequal = list[tuple[str, tuple[int, ...]]]()
    for spec, ranks in _replicas(scenario):
        now = [bound[rank][spec.name] for rank in ranks]
        before = [start_value(scenario, spec, rank).to(now[0].dtype) for rank in ranks]
        are_made_equal |= not all(map(torch.equal, now, before))
        if not all(torch.equal(each, now[0]) for each in now):
            unequal.append((spec.name, ranks))
    for name, ranks in unequal if are_made_equal else ():
        others = f"those of {name!r} are unequal on {named('rank', ranks)}"
        summary = f"replicas were made equal, and {others}"
        yield _finding("replicas_left_unequal", summary, ranks[-1], name)


def _replicas(scenario: Scenario) -> Iterator[tuple[ParameterSpec, tuple[int, ...]]]:
    """Yield the parts that several ranks have and that are trained from the start."""
    for spec in filter(is_managed, scenario.trainable):
        if is_born(scenario, spec, 0) and not is_frozen(scenario, spec, -1):
            for rank in range(scenario.mesh.num_ranks):
                ranks = contributing_ranks(scenario.mesh, spec, rank)
                if rank == ranks[0] and ranks[1:]:
                    yield spec, ranks
