"""The execution of `syncverify replay`: play one scenario, compare the violations."""

from contextlib import closing

from syncverify.command.files import write_violations
from syncverify.command.playing import ended, follow_leader, playing
from syncverify.command.process_exit import VIOLATION
from syncverify.command.recorded import reproduced_line
from syncverify.errors import UsageError
from syncverify.explain.repair.diagnosis import diagnosed
from syncverify.judge.violation import Violation
from syncverify.plain_text import counted
from syncverify.playing.announced_counts import with_announced_counts
from syncverify.playing.choice import AnyBackend, features_not_played, open_backend
from syncverify.playing.program.modules import provide_layers
from syncverify.playing.sim import SimBackend
from syncverify.report.annotations import say_annotations
from syncverify.report.console import check_files, say
from syncverify.report.report import Report
from syncverify.report.results import account_of, write_account
from syncverify.report.run import annotations_of_run, explanation_of
from syncverify.report.text import scenario_lines
from syncverify.scenario.bounds import check_ranks
from syncverify.scenario.features import optional_features
from syncverify.scenario.replay_token import Reproducer, load
from syncverify.scenario.schedule import decisions_of
from syncverify.scenario.settings import ReplayOptions
from syncverify.search.found_violation import FoundViolation
from syncverify.search.replayed import observing, replayed
from syncverify.subjects.subject import Subject, resolve


def execute(options: ReplayOptions) -> int:
    """Play a recorded violation again, print the comparison and write the files."""
    with playing(backend=options.backend):
        return _execute(options)


def _execute(options: ReplayOptions) -> int:
    backend = options.backend
    check_files(options)
    resolved = with_announced_counts(
        resolve(options.subject, options.contract), backend, []
    )
    provide_layers(resolved.capabilities)  # a token has the words of layers alone
    reproducer = load(options.token_or_file)
    check_ranks(backend, reproducer.scenario.mesh.num_ranks)
    found = observing(resolved, reproducer.scenario)
    not_played = features_not_played(backend, found.capabilities)
    if not not_played.isdisjoint(map(str, optional_features(reproducer.scenario))):
        raise UsageError(
            f"{backend} does not play {', '.join(sorted(not_played))}: its collectives move "
            "no data; replay on sim"
        )
    with closing(open_backend(backend, found)) as opened:
        follow_leader(opened, found)
        violations = _violations(reproducer, found, opened)
        report = Report.of(found, backend, violations, examples=1, is_replay=True)
        missing = FoundViolation(
            Violation(reproducer.property, reproducer.cause, "it does not occur"),
            reproducer.scenario,
            decisions_of(reproducer.schedule),
        )
        write_violations(options, report, found, opened, otherwise=missing)
    say_annotations(options.shown_as, annotations_of_run(report))
    write_account(account_of(report), options)
    for line in _comparison(reproducer, report, found.capabilities.tensors):
        say(line)
    return ended(VIOLATION if violations else 0, opened)


def _violations(
    reproducer: Reproducer, subject: Subject, backend: AnyBackend
) -> list[FoundViolation]:
    """Play the scenario, with the recorded schedule where a backend can follow it."""
    choices = sum(map(bool, reproducer.schedule.choices))
    if choices and not isinstance(backend, SimBackend):
        say(
            f"note: the token changes the default timing {counted(choices, 'time')}, and only "
            f"--backend sim can follow it; on {backend.name} the machine decides"
        )
    found = replayed(reproducer, subject, backend).found
    return [diagnosed(entry, subject, backend) for entry in found.values()]


def _comparison(reproducer: Reproducer, report: Report, tensors: str) -> list[str]:
    """Return the violations as text, the recorded one alone if it is among them."""
    identity = (reproducer.property, reproducer.cause)
    violations, subject, backend = report.violations, report.subject, report.backend
    same = [entry for entry in violations if entry.violation.identity == identity]
    texts = [
        explanation_of(entry, **report.names).text() + "\n"
        for entry in same or violations
    ]
    found = [entry.violation.identity for entry in violations]
    line = reproduced_line(reproducer, found, subject, is_right=not violations)
    if not violations:
        texts = [*scenario_lines(reproducer.scenario, tensors)]
    return [*texts, f"{line} on {backend}"]
