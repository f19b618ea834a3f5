"""The execution of `syncverify export`: play a token, write the script, run it once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from syncverify.command.export.played import played_with_methods
from syncverify.command.export.script import Reproduction
from syncverify.command.export.shown_gradient import ShownGradient, wrong_gradient_of
from syncverify.command.export.subject_text import subject_text
from syncverify.command.export.trial import Trial, try_script
from syncverify.command.playing import leave, playing
from syncverify.errors import UsageError
from syncverify.judge.properties.collectives import (
    accumulation_is_local_until_reduced,
)
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.violation import Violation
from syncverify.playing.program.graphs.shared_storage import INTO_ONE_STORAGE
from syncverify.playing.sim import SimBackend
from syncverify.report.console import check_folders, say
from syncverify.scenario.feature_table import EVENTS, FEATURES, PLAIN
from syncverify.scenario.features import optional_features
from syncverify.scenario.replay_token import Reproducer, load
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.step_plan import GROWN
from syncverify.search.beyond_contract import observing
from syncverify.subjects.subject import Subject, resolve

# Uses that take several parameters together.
_SHARED_USES: Final = ("added_to_another", INTO_ONE_STORAGE)


@playing()
def execute(
    token_or_file: str, subject: str, contract: str | None, script: Path
) -> None:
    """Write the script of a recorded violation, and exit.

    Raises:
        UsageError: No script can show the violation; the message says why.
    """
    check_folders(script)
    if script.exists():
        raise UsageError(f"{str(script)!r} exists already; hint: name another file")
    reproducer = load(token_or_file)
    refuse_features(reproducer.scenario)
    resolved = observing(resolve(subject, contract), reproducer.scenario)
    reproduction = reproduction_of(reproducer, resolved, script.parent)
    trial = write_and_try(reproduction, script)
    if not trial.shows_wrong_gradient:
        script.unlink()
        raise UsageError(
            f"no script was written: with torch alone, on gloo, {subject} shows no wrong "
            f"gradient here ({trial.last_words}); the token can still be replayed"
        )
    say(trial.output.rstrip())
    say(
        f"\nwrote {script}: `python {script}` shows this with torch alone, and exits with 1"
    )
    with closing(SimBackend()) as backend:
        leave(0, backend)


def reproduction_of(
    reproducer: Reproducer, subject: Subject, folder: Path
) -> Reproduction:
    """Play a reproducer on `sim`.

    Returns:
        The wrong gradient, for a script in a folder.

    Raises:
        UsageError: No script can show the violation.
    """
    played, methods = played_with_methods(reproducer, subject)
    if (reproducer.property, reproducer.cause) not in played.found:
        raise UsageError(
            f"{subject.name} does not violate {reproducer.property} ({reproducer.cause}) in "
            "the scenario of the token: there is nothing to export"
        )
    violation = played.violation
    return Reproduction(
        scenario=played.scenario,
        capabilities=subject.capabilities,
        subject=subject_text(subject, folder),
        methods=methods,
        takes_count=subject.takes_count,
        shown=_wrong_number(played.judgement, violation),
        violation=f"{violation.property} ({violation.cause}): {violation.summary}",
        pauses=violation.property == accumulation_is_local_until_reduced.__name__,
    )


def write_and_try(
    reproduction: Reproduction, script: Path, python: Sequence[str] = (sys.executable,)
) -> Trial:
    """Write the script and run it, again with stand-ins for CUDA streams if it shows nothing wrong.

    Returns:
        The last trial.
    """
    trial = Trial(None, "", "")
    for without_streams in (False, True):
        script.write_text(
            reproduction.text(without_streams=without_streams), encoding="utf-8"
        )
        trial = try_script(script, python)
        if trial.code is None or trial.shows_wrong_gradient:
            break
    return trial


def _wrong_number(judgement: Judgement, violation: Violation) -> ShownGradient:
    """Return the wrong gradient.

    Raises:
        UsageError: No gradient of a script would be wrong.
    """
    named = f"{violation.property} ({violation.cause})"
    if violation.evidence.unordered is not None:
        raise UsageError(
            f"{named} is about the order of work on streams; a script for a CPU has none and "
            "would show nothing: replay the token instead"
        )
    wrong = wrong_gradient_of(judgement, violation)
    if wrong is None:
        raise UsageError(
            f"{named} leaves no wrong number in a gradient, and a script shows nothing else: "
            "replay the token instead"
        )
    return wrong


def refuse_features(scenario: Scenario) -> None:
    """Refuse a scenario with features that no script can play.

    Raises:
        UsageError: It has one.
    """
    present = dict.fromkeys(optional_features(scenario))
    uses = {spec.use for spec in scenario.parameters}
    for feature, is_met in (
        (f"module={scenario.module}", scenario.module != PLAIN),
        ("event=failing_collectives", ("event", "failing_collectives") in present),
        (f"event={GROWN}", GROWN in scenario.events),
        *((f"use={use}", use in uses) for use in _SHARED_USES),
        (
            "event=missing_backward/on_odd_ranks",
            any(EVENTS[event].even_ranks_alone for event in scenario.events),
        ),
        ("event=move of a parameter with a gradient dtype", _moves_dtypes(scenario)),
        *((str(each), bool(FEATURES[each].rare)) for each in present),
    ):
        if is_met:
            raise UsageError(
                f"no script can play {feature}, which needs the harness: replay the token "
                "instead"
            )


def _moves_dtypes(scenario: Scenario) -> bool:
    """Tell whether parameters move that have to get their gradient's dtype back."""
    has_dtype = any(spec.grad_dtype is not None for spec in scenario.parameters)
    return has_dtype and "move" in scenario.events
