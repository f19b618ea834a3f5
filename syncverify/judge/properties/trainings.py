"""The properties of a training: its values on ranks of a mesh, beside those of one rank."""

from collections.abc import Iterator, Sequence

from syncverify.judge.properties.judgement import Needs, Property
from syncverify.judge.whole_step.causes import WrongQuantity
from syncverify.judge.whole_step.copies import copies_apart
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.findings import findings
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.resumed import ResumedPlay


@Property(
    needs=Needs.VALUES,
    order=240,
    condition="A training ended on the mesh, and has values that one rank has too.",
    example="a gradient that lacks the sum over an axis of tensor parallelism",
)
def mesh_has_values_of_one_rank(
    values: Sequence[ComparedValue], play: MeshPlay
) -> list[WrongQuantity]:
    """Each rank has the value that one rank has.

    For all steps and ranks: parameters, gradients, their norm, the state of the optimizer and what
    a step returns are those of the same training on one rank, within rounding. Copies of one value
    are equal to the bit.

    Catches: sums over the wrong ranks, factors, norms of parts, an optimizer without a parameter.
    Does not judge a value that other layouts may hold elsewhere; the report lists it.
    """
    if any(each.wrong_ranks for each in values):
        return findings(values, play)
    return copies_apart(values, play.ranks, play.layout)


@Property(
    needs=Needs.VALUES,
    order=250,
    condition="A training ended on the mesh, and has values that one rank has too.",
    example="a checkpoint that has the shard of one rank alone",
)
def loading_continues_the_training(
    values: Sequence[ComparedValue], play: ResumedPlay
) -> Iterator[WrongQuantity]:
    """A training that was saved and loaded goes on with the values that it had.

    Catches: a state that is not saved, parts at wrong places. Does not judge what a step keeps
    outside of model, optimizer, schedule, scaler and generator, unless it changes a value.
    """
    return play.findings(values)
