"""The execution of `syncverify export`: play a token, write the script, run it once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from syncverify.command.export.script import Reproduction
from syncverify.command.export.shown_gradient import wrong_gradient_of
from syncverify.command.export.subject_text import subject_text
from syncverify.command.playing import playing
from syncverify.command.process_exit import VIOLATION
from syncverify.errors import UsageError
from syncverify.judge.properties.collectives import accumulation_is_local_until_reduced
from syncverify.playing.program.graphs.custom_function import INTO_ONE_STORAGE
from syncverify.playing.program.two_synchronizers import TwoSynchronizers
from syncverify.playing.sim import SimBackend
from syncverify.report.console import check_files, say
from syncverify.scenario.feature_table import EVENTS, FEATURES, PLAIN
from syncverify.scenario.features import optional_features
from syncverify.scenario.replay_token import Reproducer, load
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.settings import ExportOptions
from syncverify.scenario.step_plan import GROWN
from syncverify.search.replayed import Replayed, observing, replayed
from syncverify.subjects.subject import Subject, resolve, same_signature

# Uses that take several parameters together.
_SHARED_USES: Final = ("added_to_another", INTO_ONE_STORAGE)
_OPTIONAL_METHODS: Final = (
    *("flush", "mark_ready", "reset", "run_micro_batch", "evaluate"),
    *("set_required_accumulations", "step_in_backward"),
)
# A script imports torch once for each rank, and plays a few micro-batches.
_TIME_LIMIT_SECONDS = 120.0


@playing()
def execute(options: ExportOptions) -> int:
    """Write the script of a recorded violation; raise UsageError if no script can show it."""
    subject, script = options.subject, options.script
    check_files(options, script)
    if script.exists():
        raise UsageError(f"{str(script)!r} exists already; hint: name another file")
    reproducer = load(options.token_or_file)
    refuse_features(reproducer.scenario)
    resolved = observing(resolve(subject, options.contract), reproducer.scenario)
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
    return 0


def reproduction_of(
    reproducer: Reproducer, subject: Subject, folder: Path
) -> Reproduction:
    """Play a reproducer on `sim`; return its wrong gradient for a script, or raise UsageError."""
    played, methods = played_with_methods(reproducer, subject)
    if (reproducer.property, reproducer.cause) not in played.found:
        raise UsageError(
            f"{subject.name} does not violate {reproducer.property} ({reproducer.cause}) in "
            "the scenario of the token: there is nothing to export"
        )
    violation, text = played.violation, subject_text(subject, folder)
    named = f"{violation.property} ({violation.cause})"
    if violation.evidence.unordered is not None:
        raise UsageError(
            f"{named} is about the order of work on streams; a script for a CPU has none and "
            "would show nothing: replay the token instead"
        )
    wrong = wrong_gradient_of(played.judgement, violation)
    if wrong is None:
        raise UsageError(
            f"{named} leaves no wrong number in a gradient, and a script shows nothing else: "
            "replay the token instead"
        )
    return Reproduction(
        scenario=played.scenario,
        capabilities=subject.capabilities,
        subject=text,
        methods=methods,
        takes_count=subject.takes_count,
        shown=wrong,
        violation=f"{named}: {violation.summary}",
        pauses=violation.property == accumulation_is_local_until_reduced.__name__,
    )


def write_and_try(reproduction: Reproduction, script: Path) -> Trial:
    """Write the script and run it, again with stand-ins for CUDA streams if it shows nothing wrong."""
    trial = Trial(None, "", "")
    for without_streams in (False, True):
        text = reproduction.text(without_streams=without_streams)
        script.write_text(text, encoding="utf-8")
        trial = _tried(script)
        if trial.code is None or trial.shows_wrong_gradient:
            break
    return trial


@dataclass(frozen=True, slots=True)
class Trial:
    """The end of a script."""

    code: int | None  # None if it did not end in time
    output: str  # by rank: the ranks themselves print in any order
    complaint: str  # its standard error

    @property
    def shows_wrong_gradient(self) -> bool:
        """Tell whether a wrong gradient, and nothing else, ended the script."""
        return self.code == VIOLATION and " is WRONG " in self.output

    @property
    def last_words(self) -> str:
        """Return one line about the end of a script that shows no wrong gradient."""
        if self.code is None:
            return f"it did not end within {_TIME_LIMIT_SECONDS:.0f} s"
        lines = self.complaint.strip().splitlines()
        if self.code and lines:
            return lines[-1]
        return f"exit code {self.code}: the gradient is right there"


def _tried(script: Path) -> Trial:
    """Run a script, and end it with all of its ranks."""
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # one group of processes, which can end together
    ) as process:
        try:
            output, complaint = process.communicate(timeout=_TIME_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            return Trial(None, "", "")
        finally:
            with suppress(ProcessLookupError):  # the usual case: all have ended
                os.killpg(process.pid, signal.SIGKILL)
    by_rank = sorted(re.split(r"^(?=rank \d)", output, flags=re.MULTILINE))
    return Trial(process.returncode, "".join(by_rank), complaint)


def played_with_methods(
    reproducer: Reproducer, subject: Subject
) -> tuple[Replayed, frozenset[str]]:
    """Play a reproducer on `sim`; return the play, and the optional methods of the synchronizer."""
    methods = set[str]()

    @same_signature(subject.factory)
    def make(*given: Any) -> Any:
        made = subject.factory(*given)
        methods.update(_methods_of(made))
        return made

    played = replayed(reproducer, replace(subject, factory=make), SimBackend())
    if reproducer.scenario.synchronizers == "two":
        methods.update(_methods_of(TwoSynchronizers))
    return played, frozenset(methods)


def _methods_of(synchronizer: object) -> set[str]:
    found = {name: getattr(synchronizer, name, None) for name in _OPTIONAL_METHODS}
    return {name for name, method in found.items() if callable(method)}


def refuse_features(scenario: Scenario) -> None:
    """Raise UsageError for a scenario with features that no script can play."""
    present = dict.fromkeys(optional_features(scenario))
    uses = {spec.use for spec in scenario.parameters}
    # Parameters that move would have to get their gradient's dtype back.
    has_dtype = any(spec.grad_dtype is not None for spec in scenario.parameters)
    for feature, is_met in (
        (f"module={scenario.module}", scenario.module != PLAIN),
        ("event=failing_collectives", ("event", "failing_collectives") in present),
        (f"event={GROWN}", GROWN in scenario.events),
        *((f"use={use}", use in uses) for use in _SHARED_USES),
        (
            "event=missing_backward/on_odd_ranks",
            any(EVENTS[event].even_ranks_alone for event in scenario.events),
        ),
        (
            "event=move of a parameter with a gradient dtype",
            has_dtype and "move" in scenario.events,
        ),
        *((str(each), bool(FEATURES[each].rare)) for each in present),
    ):
        if is_met:
            raise UsageError(
                f"no script can play {feature}, which needs the harness: replay the token "
                "instead"
            )
