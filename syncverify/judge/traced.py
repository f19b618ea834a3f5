"""What ranks did, whatever they ran: a run, and the work without an order in it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from syncverify.judge.ordering.remedies import Disorder, disorders
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.records import CollectiveLaunch, TraceRecord
from syncverify.trace.run import RankRun, Run, Trace


class Traced:  # without slots: `cached_property` needs a dictionary
    """What ranks did."""

    run: Run

    @property
    def is_for_nccl(self) -> bool:
        """Tell whether the program runs with NCCL alone, so that gloo's rules say nothing."""
        return False

    @cached_property
    def disorders(self) -> list[Disorder]:
        """Work without an order under the rules of streams, or else under those of gloo.

        It is found once for all properties.

        Note [Streams, then gloo]
            A trace lists the requests of the host, in order, so it can be read twice: as a
            GPU with streams would run it, and as gloo would, whose host runs every
            operator itself and blocks in `wait()`. Almost every disorder on gloo is one
            on streams as well. So gloo's rules are tried only where streams show none.
        """
        traces = [self._judged_records(rank_run) for rank_run in self.run.ranks]
        found = disorders(traces, "stream")
        return found if found or self.is_for_nccl else disorders(traces, "host")

    def _judged_records(self, rank_run: RankRun) -> Trace:
        return rank_run.trace


@dataclass(frozen=True)
class TracedRun(Traced):
    """The run of any program."""

    run: Run
    is_for_nccl: bool = False


def launches_of(trace: Iterable[TraceRecord]) -> Iterator[CollectiveLaunch]:
    """Yield the launches of a trace."""
    # Each property walks the traces, and a launch has no subclass.
    return (record for record in trace if type(record) is CollectiveLaunch)


def shared_launches(trace: Iterable[TraceRecord]) -> Iterator[CollectiveLaunch]:
    """Yield the launches over two ranks or more, without messages from rank to rank."""
    for launch in launches_of(trace):
        if len(launch.ranks) > 1 and launch.operation not in POINT_TO_POINT:
            yield launch
