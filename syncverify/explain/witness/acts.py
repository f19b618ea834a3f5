"""The lines of the subject that wrote memory or communicated in the step of a violation."""

from __future__ import annotations

import re

from syncverify.judge.violation import Violation
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject
from syncverify.trace.records import Access, CollectiveLaunch, TraceRecord
from syncverify.trace.source_lines import CodeLine, with_code

# Names of operators that write to an argument. The writes of a record are its new results as well.
_IN_PLACE = re.compile(r"\w+\.\w+_(\.|$)")


def acts_of(
    violation: Violation,
    scenario: Scenario,
    subject: Subject,
    backend: SimBackend,
    schedule: Schedule,
) -> tuple[CodeLine, ...]:
    """Return the lines, each once, in the order in which they first ran.

    Returns:
        Lines with their code; none for violations that name no rank and step, or that name
        their events already.
    """
    rank, step = violation.evidence.rank, violation.evidence.step
    if rank is None or step is None or violation.evidence.unordered is not None:
        return ()
    recorders = [
        RankRecorder(keeps_everything=True) for _ in range(scenario.mesh.num_ranks)
    ]
    run = backend.run(scenario, subject, schedule, recorders)
    lines = [
        record.source
        for record in run.ranks[rank].trace
        if isinstance(record, Access | CollectiveLaunch)
        and record.moment.step == step
        and _writes(record)
    ]
    return with_code(dict.fromkeys(lines))


def _writes(record: TraceRecord) -> bool:
    is_in_place = isinstance(record, Access) and _IN_PLACE.search(record.operator)
    return isinstance(record, CollectiveLaunch) or bool(is_in_place)
