"""Properties of memory: all that is read was written, and what is held does not grow."""

from collections.abc import Iterator

from syncverify.judge.evidence import Evidence
from syncverify.judge.properties.judgement import Judgement, Needs, Property
from syncverify.judge.traced import Traced
from syncverify.judge.violation import Violation, finding
from syncverify.scenario.feature_row import variant
from syncverify.scenario.feature_table import MANY, PLAIN
from syncverify.trace.records import Access, UnwrittenRead


@Property(
    needs=Needs.RUN,
    order=105,
    condition="Accesses to memory are recorded (on `sim`, where several streams are used).",
    applies=lambda seen: seen.has(Access),
    example="a bucket of `torch.empty()` that is reduced before all of it is filled",
    leads_to=(
        "gradient_equals_reference",
        "gradient_is_within_rounding",
        "unreduced_stay_local",
        "replicas_agree",
    ),
)
def memory_is_written_before_it_is_read(traced: Traced) -> Iterator[Violation]:
    """No value comes from memory that was allocated and never written.

    For all ranks: a gradient, a number that the host reads, and a result hold nothing of memory
    that `empty()` and its like left as it was.

    Catches: buffers after `to_empty()` that nothing fills, a bucket that is reduced with a part
    that no gradient was copied to. Does not promise anything of integers, of bfloat16, or of
    bytes that are read and come to nothing, such as padding.
    """
    for rank, rank_run in enumerate(traced.run.ranks):
        for record in rank_run.trace:
            if isinstance(record, UnwrittenRead):
                summary = (
                    f"rank {rank}: expected memory to be written before it is read, but "
                    f"{record.operator} at {record.source} reads memory that was allocated at "
                    f"{record.made_at} and not written since"
                )
                evidence = Evidence(rank=rank, named=(record.made_at, record.source))
                yield finding("read_unwritten", summary, rank, None, evidence)


@Property(
    order=200,
    condition="A program has many steps, and a subject came to the end of them.",
    applies=lambda seen: any(len(e.held) >= MANY["steps"] for e in seen.run.ranks),
    example="works, copies or events that a step adds and no step drops",
    needs_data=False,
)
def memory_does_not_pile_up(judgement: Judgement) -> Iterator[Violation]:
    """The tensors, handles and process groups of a subject do not grow with the steps.

    For all ranks, where a program has many steps: their number, and the tensors' bytes, are
    not larger after every step than before it, the first two steps left out. In a program
    whose later steps need no more than the first two, they are not larger after every step
    than two steps before either: it has no step events, uses the same parameters in each step,
    and one of its first two steps has as many micro-batches as any later one. Process groups
    are counted in such a program only.

    Catches: handles, copies and records of each step, or of each second step, that are never
    dropped: on the subject, in a global variable of its module, or in a cache without a bound.
    A tensor that becomes longer. Process groups that are made in `wait()`. Does not judge a
    history with a bound of a few steps.
    """
    # A subject may have all that it needs after two steps. But pools grow with the number of
    # micro-batches, and with parameters that are trained later.
    counts, events = judgement.scenario.accumulations, {*judgement.scenario.events}
    is_later = any(variant(spec.used) for spec in judgement.scenario.parameters)
    needs_more = is_later or events - {PLAIN} or max(counts[:2]) < max(counts)
    for rank, rank_run in enumerate(judgement.run.ranks):
        if len(rank_run.held) < MANY["steps"]:
            continue
        numbers, sizes, groups = zip(*rank_run.held, strict=True)
        for counted, what in (
            (numbers, "tensors and handles of collectives"),
            (sizes, "bytes of tensors"),
            (() if needs_more else groups, "process groups"),
        ):
            later = counted[1:]
            spans = [1] if needs_more else [1, 2]
            pairs = [[*zip(later, later[span:], strict=False)] for span in spans]
            if all(pairs) and any(all(e < then for e, then in each) for each in pairs):
                listed = ", ".join(map(str, counted))
                summary = f"rank {rank} holds more {what} from step to step: {listed}"
                evidence = Evidence(rank=rank, facts={"held": counted})
                yield finding("piles_up", summary, rank, None, evidence)
                break
