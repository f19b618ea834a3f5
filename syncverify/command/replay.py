"""The execution of `syncverify replay`: play one scenario, compare the violations."""

from __future__ import annotations

from contextlib import closing

import click

from syncverify.backends.choice import AnyBackend, open_backend
from syncverify.backends.sim import SimBackend
from syncverify.command.playing import follow_leader, leave, playing
from syncverify.command.process_exit import VIOLATION
from syncverify.errors import UsageError
from syncverify.judge.properties import check
from syncverify.report.text import scenario_lines, violation_text
from syncverify.scenario.coverage import plain_features_outside
from syncverify.scenario.token import Reproducer, load
from syncverify.search.found_violation import FoundViolation
from syncverify.sim.turns.decisions import Decisions, Following
from syncverify.subjects.subject import Subject, resolve
from syncverify.verification import with_witness


@playing()
def execute(token_or_file: str, subject: str, backend: str) -> None:
    """Play a recorded violation again, print the comparison and exit."""
    reproducer = load(token_or_file)
    found = resolve(subject)
    outside = plain_features_outside(reproducer.scenario, found.capabilities)
    if outside:
        raise UsageError(
            f"subject {subject!r} does not promise to handle {', '.join(outside)}: its "
            "capabilities leave that out; replay with a subject that covers it"
        )
    with closing(open_backend(backend, found)) as opened:
        if follow_leader(opened, found):
            return
        violations = _violations(reproducer, found, opened)
    for line in _comparison(reproducer, violations, subject, backend):
        click.echo(line)
    leave(VIOLATION if violations else 0, opened)


def _violations(
    reproducer: Reproducer, subject: Subject, backend: AnyBackend
) -> list[FoundViolation]:
    """Play the scenario, with the recorded schedule where a backend can follow it."""
    decisions = Decisions(Following(reproducer.schedule))
    if isinstance(backend, SimBackend):
        result = backend.run_scheduled(reproducer.scenario, subject, decisions)
    else:
        _note_schedule(reproducer, backend.name)
        result = backend.run(reproducer.scenario, subject)
    taken = tuple(decisions.taken)
    return [
        with_witness(
            FoundViolation(violation, reproducer.scenario, taken), subject, backend
        )
        for violation in check(reproducer.scenario, result, subject.capabilities)
    ]


def _note_schedule(reproducer: Reproducer, backend: str) -> None:
    """Print how much of the token only simulated ranks can follow."""
    choices = sum(map(bool, reproducer.schedule.choices))
    if choices:
        click.echo(
            f"note: the token asks {choices} time(s) for other timing than by default, "
            f"which only --backend sim can follow; on {backend} the machine's own decides"
        )


def _comparison(
    reproducer: Reproducer, found: list[FoundViolation], subject: str, backend: str
) -> list[str]:
    """Return the violations as text, the recorded one alone if it is among them."""
    identity = (reproducer.property, reproducer.cause)
    named = f"{reproducer.property} ({reproducer.cause})"
    same = [entry for entry in found if entry.violation.identity == identity]
    texts = [
        violation_text(entry, subject=subject, backend=backend) + "\n"
        for entry in same or found
    ]
    if same:
        return [*texts, f"REPRODUCED: {subject} violates {named} on {backend}"]
    if found:
        other = f"{subject} violates something else than {named} on {backend}"
        return [*texts, f"NOT REPRODUCED: {other}"]
    return [
        *scenario_lines(reproducer.scenario),
        f"NOT REPRODUCED: {subject} holds {named} on {backend}",
    ]
