"""The property of a gradient's form: all of it but its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.judge.cause import Mistake
from syncverify.judge.evidence import Evidence
from syncverify.judge.properties.after_wait import each_after_wait
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.property import Property
from syncverify.judge.violation import Violation, finding


def wait_returned(judgement: Judgement) -> bool:
    """A `wait()` returned."""
    return judgement.was_seen("reduced")


def gradient_has_form_of_parameter(judgement: Judgement) -> Iterator[Violation]:
    """After `wait()`, a gradient has the type, mesh, placements and strides that torch alone gives.

    For all ranks, steps and trainable parameters: the gradient of a DTensor is a DTensor of the
    parameter's mesh and placements, its strides are the parameter's or row-major, and neither a
    graph nor inference mode keeps an optimizer from writing it in place. A gradient that
    `create_graph=True` made may have a graph.

    Catches: results that are assigned in the form of the flat buffer, as ordinary tensors, on a
    flattened mesh, from a differentiable collective or under `inference_mode()`. Does not
    promise the numbers: `gradient_equals_reference` does.
    """
    may_have_graph = judgement.scenario.backward == "create_graph"
    for rank, observation, spec in each_after_wait(judgement):
        if judgement.was_refused(observation.step):
            continue
        for cause, text in observation.misfits.get(spec.name, ()):
            if cause == "keeps_graph" and may_have_graph:
                continue
            yield finding(
                cause,
                f"gradient of {spec.name!r} on rank {rank}, step {observation.step} has another "
                f"form than torch alone gives it: {text}",
                rank,
                spec.name,
                Evidence(rank=rank, step=observation.step),
            )


GRADIENT_HAS_FORM_OF_PARAMETER = Property(
    gradient_has_form_of_parameter,
    order=130,
    applies=wait_returned,
    example="an ordinary tensor for a DTensor, another mesh, a graph that is kept",
    needs_data=False,
    causes=(
        Mistake(
            "wrong_type",
            "a DTensor has an ordinary tensor as gradient, or an ordinary tensor has a DTensor",
            "assign a DTensor to the `.grad` of a DTensor, and an ordinary tensor to others",
        ),
        Mistake(
            "wrong_mesh",
            "the mesh of the gradient is different from that of its parameter",
            "assign a DTensor on the parameter's own `device_mesh`",
        ),
        Mistake(
            "wrong_placements",
            "the placements of the gradient are different from those of its parameter",
            "assign a DTensor with the parameter's placements to `.grad`",
        ),
        Mistake(
            "wrong_strides",
            "the strides of the gradient are different from those that torch alone gives it",
            "give `.grad` the parameter's strides, or make it contiguous",
        ),
        Mistake(
            "keeps_graph",
            "the gradient keeps a graph of autograd",
            "reduce under `torch.no_grad()`, or assign `gradient.detach()`",
        ),
        Mistake(
            "inference_tensor",
            "the gradient was made in inference mode",
            "reduce under `torch.no_grad()` rather than `inference_mode()`",
        ),
    ),
)
