"""The property of memory that is read before it is written."""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.judge.cause import Mistake
from syncverify.judge.evidence import ReadUnwritten
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.property import Property
from syncverify.judge.traced import Traced
from syncverify.judge.violation import Violation, finding
from syncverify.trace.records import Access, UnwrittenRead


def records_accesses(judgement: Judgement) -> bool:
    """Accesses to memory are recorded (on `sim`, where several streams are used)."""
    return any(isinstance(record, Access) for record in judgement.records)


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
                yield finding(
                    "read_unwritten",
                    f"rank {rank}: expected memory to be written before it is read, but "
                    f"{record.operator} at {record.source} reads memory that was allocated at "
                    f"{record.made_at} and not written since",
                    rank,
                    None,
                    ReadUnwritten(rank=rank, named=(record.made_at, record.source)),
                )


MEMORY_IS_WRITTEN_BEFORE_IT_IS_READ = Property(
    memory_is_written_before_it_is_read,
    order=105,
    applies=records_accesses,
    example="a bucket of `torch.empty()` that is reduced before all of it is filled",
    leads_to=(
        "gradient_equals_reference",
        "gradient_is_within_rounding",
        "unreduced_stay_local",
        "replicas_agree",
    ),
    causes=(
        Mistake(
            "read_unwritten",
            "memory is read that nothing has written since it was allocated",
            "fill the memory when it is allocated, or send it before it is read",
        ),
    ),
)
