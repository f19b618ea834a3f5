"""What ranks answer in tests that play the part of their processes."""

from syncverify.playing.messages import JobOutcome, Status, pack
from syncverify.trace.records import CollectiveLaunch, Moment
from syncverify.trace.run import Fault, RankRun
from syncverify.trace.source_lines import CodeLine, SourceLine

LINE = SourceLine("mine.py", 7, "wait")
LAUNCH = CollectiveLaunch(
    moment=Moment("wait", 0), ranks=(0, 1), sequence=0, operation="all_reduce",
    reduce_op="SUM", dtype="float32", numel=5, regions=(), parameters=("w",),
    source=LINE,
)  # fmt: skip
WAITS = Status(0, (CodeLine(LINE, "work.wait()"),), in_torch=True, launches=(LAUNCH,))
ENDED = JobOutcome(pack(RankRun()))
RAISED = JobOutcome(pack(RankRun()), Fault("raised", (1,), "rank 1 raised"))
