"""Properties of what happens between steps and after the last one."""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.decoding import explain
from syncverify.oracle import trainable
from syncverify.owed import Owed
from syncverify.properties.judgement import Finding, Judgement
from syncverify.trace import CollectiveLaunch


def zero_grad_clears(judgement: Judgement) -> Iterator[Finding]:
    """After `zero_grad()`, every gradient is None or all zeros.

    Catches: buffers that are not cleared, cleared on some ranks only, or cleared
    elsewhere than where the gradients live. Does not promise that clearing waits for what
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
                        {"rank": rank, "step": observation.step},
                    )


def unbind_restores_parameters(judgement: Judgement) -> Iterator[Finding]:
    """After `unbind()`, parameters behave as if they had never been managed.

    For all ranks: no hook is left on a parameter, no two gradients share a storage, no
    parameter changed its value or `requires_grad`; a plain backward then gives plain
    local gradients and issues no collective.

    Catches: hooks that survive, buffers kept alive by gradients, late reductions. Does not
    promise that process groups and streams of the subject's own are given back.
    """
    for rank in range(judgement.scenario.mesh.num_ranks):
        yield from _leftovers(judgement, rank)
        yield from _late_collectives(judgement, rank)
        yield from _plain_backward(judgement, rank)


def _leftovers(judgement: Judgement, rank: int) -> Iterator[Finding]:
    left = judgement.run.ranks[rank].leftovers
    if left is None:
        return
    for name, count in left.hooks.items():
        summary = f"{count} hook(s) are left on {name!r} of rank {rank} after unbind()"
        yield Finding("hook_left", summary, rank, name, {"rank": rank, "hooks": count})
    for name in left.shared_gradients:
        summary = (
            f"the gradient of {name!r} still lies in a shared buffer after unbind()"
        )
        yield Finding("buffer_left", summary, rank, name, {"rank": rank})
    for name in left.changed:
        summary = f"{name!r} of rank {rank} changed its value or requires_grad"
        yield Finding("parameter_changed", summary, rank, name, {"rank": rank})


def _late_collectives(judgement: Judgement, rank: int) -> Iterator[Finding]:
    for event in judgement.run.ranks[rank].events:
        if isinstance(event, CollectiveLaunch) and event.moment.phase == "after_unbind":
            summary = f"rank {rank} issued a collective after unbind(): {event}"
            evidence = {"rank": rank, "collective": str(event)}
            yield Finding("collective_after_unbind", summary, rank, None, evidence)


def _plain_backward(judgement: Judgement, rank: int) -> Iterator[Finding]:
    step = judgement.scenario.num_steps
    observation = judgement.run.ranks[rank].at("unbound", step)
    if observation is None:
        return
    for spec in trainable(judgement.scenario):
        owed = Owed(judgement.reference, spec, rank, step, 1, (rank,), 1)
        cause = explain(owed, observation.gradients[spec.name])
        if cause is not None:
            summary = (
                f"a plain backward after unbind() gives {spec.name!r} of rank {rank} a wrong "
                f"gradient: {cause.text}"
            )
            evidence = {"rank": rank, "explanation": cause.text}
            yield Finding("backward_not_plain", summary, rank, spec.name, evidence)
