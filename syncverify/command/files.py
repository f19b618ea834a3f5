"""The files of a report: JSON and SARIF, a page, and a violation as a trace for Perfetto and as dumps."""

import pickle

from syncverify.errors import UsageError
from syncverify.judge.dumps.writing import dumps_of
from syncverify.playing.choice import AnyBackend
from syncverify.report.console import say, write, write_json
from syncverify.report.evidence import remedy_of
from syncverify.report.report import Report
from syncverify.report.run import account_of
from syncverify.scenario.settings import ReplayOptions, RunOptions
from syncverify.search.found_violation import FoundViolation
from syncverify.search.replayed import shown_again
from syncverify.subjects.subject import Subject
from syncverify.trace.timeline.timeline import timeline_of
from syncverify.trace.timeline.trace_events import trace_events


def write_violations(
    options: RunOptions | ReplayOptions,
    report: Report,
    subject: Subject,
    backend: AnyBackend | None,  # None where violations end the process
    otherwise: FoundViolation | None = None,  # shown where the report has no violation
) -> None:
    """Play each violation of a report again, and write the page, and the files of the first one."""
    of_first = [each for each in (options.trace_path, options.dumps_path) if each]
    if options.html_path is None and not of_first:
        return
    entries = report.violations or ((otherwise,) if otherwise else ())
    runs = [
        None if backend is None else shown_again(entry, subject, backend)
        for entry in entries
    ]
    if options.html_path is not None:
        # Late, as the template engine is needed for this file alone.
        from syncverify.report.html.page import drawn
        from syncverify.report.html.render import rendered

        shown = runs[: len(report.violations)]
        values = drawn(report, subject.capabilities, shown)
        write(options.html_path, rendered(account_of(report), values))
    first = next((run for run in runs if run is not None), None)
    if first is None:
        for path in of_first:
            say(f"note: no violation was played again, so {str(path)!r} is not written")
        return
    traces = [rank_run.trace for rank_run in first.run.ranks]
    if options.trace_path is not None:
        remedy = remedy_of(first.violation)
        values = trace_events(timeline_of(traces), first.race, remedy)
        write_json(options.trace_path, values)
    if options.dumps_path is not None:
        folder = options.dumps_path
        try:
            folder.mkdir(exist_ok=True)
            for rank, dump in dumps_of(traces).items():  # the names of torch's recorder
                (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
        except OSError as error:
            raise UsageError(
                f"cannot write {str(folder)!r}: {error.strerror}"
            ) from error
