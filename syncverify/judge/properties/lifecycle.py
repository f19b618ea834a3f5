"""Properties of the calls of a subject: they end, and keep their promises."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from syncverify.judge.decoding import explain
from syncverify.judge.evidence import Event, Evidence, Left, Mistimed, ended
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties.circumstances import (
    after_earlier_steps,
    after_like_step,
)
from syncverify.judge.properties.judgement import Finding, Judgement
from syncverify.judge.properties.other_explanations import skips
from syncverify.judge.reference import trainable
from syncverify.judge.signs import Raised, Sign
from syncverify.judge.traced import launches_of
from syncverify.plain_text import counted
from syncverify.trace.run import Fault, FaultKind, Leftovers, Run

_TOO_EARLY = "hook_too_early"


def every_rank_finishes(judgement: Judgement) -> Iterator[Finding]:
    """No rank ends early on a legal scenario.

    No call of the subject raises, and no process dies. Where a subject may refuse a
    feature of the scenario, it may raise an error that explains the refusal in words.

    Catches: errors on legal programs, crashes. Does not judge ranks that never end:
    `every_wait_completes` does.
    """
    fault = judgement.run.fault
    if fault is None or judgement.refused_step is None:
        yield from _fault(judgement, {"raised", "process_died"})
    elif not fault.is_clear:
        summary = f"expected an error that names the mistake, but {fault.summary}"
        for finding in _fault(judgement, {"raised"}):
            if finding.cause == _TOO_EARLY:
                yield finding
                continue
            yield Finding(
                "unclear_error",
                summary,
                finding.rank,
                None,
                finding.evidence,
                shows=finding.shows,
                explained_by=finding.explained_by,
            )


def every_wait_completes(judgement: Judgement) -> Iterator[Finding]:
    """Every wait and every loop ends.

    No ranks wait for each other in a circle, no rank waits for one that has ended, and no
    rank computes, polls or communicates without an end.

    Catches: a rank that skips a collective, communicators waited for in different orders,
    a wait for work that is never done. Does not promise an end within a time: a slow rank
    that makes progress is fine.
    """
    for finding in _fault(judgement, {"deadlock", "never_returns", "step_bound"}):
        yield replace(finding, shows=skips(judgement))


def zero_grad_clears(judgement: Judgement) -> Iterator[Finding]:
    """After `zero_grad()`, every gradient is None or all zeros.

    Catches: buffers that are not cleared, cleared on some ranks only, or cleared in other
    memory than that of the gradients. Does not promise that clearing waits for work that
    still uses the buffer: `zero_grad_waits_for_reduce` does.
    """
    for rank, rank_run in enumerate(judgement.run.ranks):
        for observation in rank_run.observations:
            if observation.point != "zeroed":
                continue
            for name, gradient in observation.gradients.items():
                if gradient is not None and gradient.any():
                    yield Finding(
                        "gradient_left",
                        f"gradient of {name!r} on rank {rank} is not zero after zero_grad() of "
                        f"step {observation.step}",
                        rank,
                        name,
                        Evidence(rank=rank, step=observation.step),
                    )


def unbind_restores_parameters(judgement: Judgement) -> Iterator[Finding]:
    """After `unbind()`, parameters behave as if they had never been managed.

    For all ranks: no hook is left on a parameter or called by a further backward, and the
    training program's own hooks are still there. No two gradients or parameters came to
    share a storage. No parameter keeps a tensor as a new attribute, or changed its value or
    `requires_grad`. A further backward gives local gradients and issues no collective.
    Settings of the process are as they were (defaults of torch, environment, hooks on all
    modules), and no random generator was seeded or set back to an earlier state.

    Catches: hooks that survive, buffers kept alive by gradients, late reductions. Does not
    promise that the subject gives back its process groups, threads and streams. A subject
    that owns the parameters may keep them in one storage.
    """
    for rank in range(judgement.scenario.mesh.num_ranks):
        yield from _leftovers(judgement, rank)
        yield from _late_collectives(judgement, rank)
        yield from _plain_backward(judgement, rank)
    yield from _raised_by_hook_left(judgement)


def _leftovers(judgement: Judgement, rank: int) -> Iterator[Finding]:
    left = judgement.run.ranks[rank].leftovers
    if left is None:
        return
    for name, count in left.hooks.items():
        are = "is" if count == 1 else "are"
        summary = f"{counted(count, 'hook')} {are} left on {name!r} of rank {rank} after unbind()"
        yield Finding("hook_left", summary, rank, name, Left(rank=rank, hooks=count))
    for name in left.shared_gradients:
        summary = (
            f"the gradient of {name!r} still lies in a shared buffer after unbind()"
        )
        yield Finding("buffer_left", summary, rank, name, Left(rank=rank))
    for name in left.changed:
        summary = f"{name!r} of rank {rank} changed its value or requires_grad"
        yield Finding("parameter_changed", summary, rank, name, Left(rank=rank))
    for line in () if left.hooks else left.called:
        summary = f"a backward on rank {rank} after unbind() still calls {line}"
        yield Finding(
            "hook_left", summary, rank, None, Left(rank=rank, named=(line,), line=line)
        )
    for name in left.lost_hooks:
        summary = f"unbind() removed a hook on {name!r} of rank {rank} that was there before bind()"
        yield Finding("hook_lost", summary, rank, name, Left(rank=rank))
    for name, attributes in left.attributes.items():
        named = ", ".join(f"`{attribute}`" for attribute in attributes)
        summary = (
            f"{name!r} of rank {rank} keeps a tensor in {named} after unbind(), and with it "
            "the memory of that tensor"
        )
        yield Finding("attribute_left", summary, rank, name, Left(rank=rank))
    if not judgement.reference.capabilities.owns_parameters:
        for name in left.shared_parameters:
            summary = (
                f"{name!r} of rank {rank} lies in one storage with other parameters after "
                "unbind(), which were apart before"
            )
            yield Finding("parameters_joined", summary, rank, name, Left(rank=rank))
    yield from _of_process(left, rank)
    yield from _rewound(judgement, left, rank)


def _raised_by_hook_left(judgement: Judgement) -> Iterator[Finding]:
    """Find a hook that plain backward after `unbind()` called, and that raised."""
    fault = judgement.run.fault
    if fault is None or fault.hook != "hook left":
        return
    if judgement.refused_step is None or not fault.is_clear:
        for rank in fault.ranks:
            summary = (
                f"a plain backward after unbind() still calls a hook: {fault.summary}"
            )
            evidence = replace(ended(fault), rank=rank)
            yield Finding("hook_left", summary, rank, None, evidence)


def _of_process(left: Leftovers, rank: int) -> Iterator[Finding]:
    for words in (*left.settings, *left.thread_settings):
        summary = f"the subject left a setting of the process changed: {words}"
        yield Finding("setting_changed", summary, rank, None, Left(rank=rank))
    for name in left.reseeded:
        summary = f"the subject seeded {name}, so the training program's random numbers repeat"
        yield Finding("generator_seeded", summary, rank, None, Left(rank=rank))


def _rewound(judgement: Judgement, left: Leftovers, rank: int) -> Iterator[Finding]:
    # A generator that was seeded repeats numbers too, on ranks of one process on all of them.
    seeded = {
        name
        for rank_run in judgement.run.ranks
        if rank_run.leftovers is not None
        for name in rank_run.leftovers.reseeded
    }
    for name in left.repeating:
        if name not in seeded:
            summary = (
                f"the subject set {name} back to an earlier state, so rank {rank} drew a "
                "number of an earlier step again"
            )
            yield Finding("generator_rewound", summary, rank, None, Left(rank=rank))


def _late_collectives(judgement: Judgement, rank: int) -> Iterator[Finding]:
    for record in launches_of(judgement.run.ranks[rank].trace):
        if record.moment.phase == "after_unbind":
            summary = f"rank {rank} issued a collective after unbind(): {record}"
            evidence = Mistimed(rank=rank, events=(Event("", record),))
            yield Finding("collective_after_unbind", summary, rank, None, evidence)


def _plain_backward(judgement: Judgement, rank: int) -> Iterator[Finding]:
    step = judgement.scenario.num_steps
    observation = judgement.run.ranks[rank].at("unbound", step)
    if observation is None:
        return
    for spec in trainable(judgement.scenario):
        expected = ExpectedGradient(
            judgement.reference, spec, rank, step, 1, (rank,), 1
        )
        cause = explain(expected, observation.gradients[spec.name])
        if cause is not None:
            summary = (
                f"a backward after unbind() gives {spec.name!r} of rank {rank} a wrong "
                f"gradient: {cause.text}"
            )
            evidence = Left(rank=rank, explanation=cause.text)
            yield Finding("backward_not_plain", summary, rank, spec.name, evidence)


def _fault(judgement: Judgement, kinds: Collection[FaultKind]) -> Iterator[Finding]:
    fault = judgement.run.fault
    if fault is None:
        return
    is_raised = fault.kind == "raised"
    signs = after_earlier_steps(judgement.scenario, fault.step, fault.step)
    left_over = after_like_step(judgement.scenario, fault.step)
    for finding in early_end(judgement.run, kinds):
        shows = finding.shows | left_over if is_raised else finding.shows
        explained_by = finding.shows | signs if is_raised else frozenset[Sign]()
        yield replace(finding, shows=shows, explained_by=explained_by)


def early_end(run: Run, kinds: Collection[FaultKind]) -> Iterator[Finding]:
    """Find the ranks of a fault of some kinds, in the run of any program."""
    fault = run.fault
    if fault is None or fault.kind not in kinds or fault.hook == "hook left":
        return
    cause = fault_identity(fault)[1]
    summary = fault.summary
    if cause == _TOO_EARLY:
        summary += ": this hook runs before autograd adds the gradient to `.grad`"
    place = frozenset({Raised(fault.identity, next(reversed(fault.details), None))})
    for rank in fault.ranks:
        yield Finding(cause, summary, rank, None, ended(fault), shows=place)


def fault_identity(fault: Fault) -> tuple[str, str]:
    """Return the property and the cause of a fault of which no part was allowed."""
    if fault.hook == "hook left":
        return unbind_restores_parameters.__name__, "hook_left"
    # The argument of a tensor hook may be None as well, for an undefined gradient.
    reads_grad = any(".grad" in str(line) for line in fault.details)
    if fault.hook == "tensor hook" and "'NoneType'" in fault.error and reads_grad:
        return every_rank_finishes.__name__, _TOO_EARLY
    ends = fault.kind in {"raised", "process_died"}
    violated = every_rank_finishes if ends else every_wait_completes
    cause = f"{fault.kind}_{fault.identity}" if fault.identity else fault.kind
    return violated.__name__, cause
