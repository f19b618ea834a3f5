"""The progress of a search: a live line on a terminal, plain lines elsewhere, and its report so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich import progress as bars
from rich.console import Console

from syncverify.plain_text import counted
from syncverify.report.console import write_json
from syncverify.report.report import Report
from syncverify.report.run import explanation_of
from syncverify.scenario.feature_row import Feature
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.observation import Rating
from syncverify.subjects.subject import Subject

# Where output is no terminal: most lines on the progress of a campaign, and of another search.
_LONG, _SHORT = 100, 4
# Fewest scenarios or features from one line to the next.
_LEAST_A_LINE = 50


@dataclass(slots=True)
class SearchProgress:
    """Prints the progress of a search while it is entered.

    Violations are printed and written to the file of `--json` at the moment at which they are met.
    So a process that does not hear Ctrl-C, or is killed, leaves the file as well. The whole report
    takes its place.
    """

    console: Console
    total: int  # number of scenarios of the search
    json_path: Path | None = None
    # Whether to print the name and the rating of each feature beyond the contract, where output
    # is no terminal.
    names_features: bool = False
    # Whether to say that `--no-beyond` leaves those features out.
    can_skip_features: bool = False
    # Whether to print more lines, with scenarios a minute and the time left.
    shows_pace: bool = False
    can_go_on: bool = False  # whether the same command goes on after an interrupt
    clock: Callable[[], float] = time.monotonic
    # Violations that are known, each in its smallest scenario until now.
    _found: dict[Identity, FoundViolation] = field(default_factory=dict)
    _num_played: int = 0
    _so_far: Report | None = None  # until there is a whole report
    _began: float = 0.0
    # Scenarios before the part of the search whose pace is shown, and the time at its begin.
    _pace: tuple[int, float] | None = None
    _topic: str = ""
    _bar: bars.Progress | None = None
    _task: bars.TaskID = field(default=bars.TaskID(0))

    def begin(self, subject: Subject, backend: str, seed: int) -> None:
        """Note a search that begins."""
        self._so_far = Report.of(subject, backend, seed=seed, is_interrupted=True)
        self._began = time.monotonic()

    def __enter__(self) -> SearchProgress:
        if self.console.is_terminal:
            self._bar = bars.Progress(
                bars.TextColumn("{task.description}", markup=False),
                bars.BarColumn(),
                bars.MofNCompleteColumn(),
                bars.TimeElapsedColumn(),
                bars.TextColumn("left:"),
                bars.TimeRemainingColumn(),
                console=self.console,
            )
            self._task = self._bar.add_task("searching", total=self.total)
            self._bar.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._end_line()

    def played(self, num_examples: int, num_violations: int) -> None:
        """Print how many examples were played, and how many distinct violations found."""
        self._num_played = num_examples
        words = f"searching, {counted(num_violations, 'distinct violation')}"
        if self._pace is None:  # an earlier call may have played some
            self._pace = num_examples - 1, self.clock()
        if self._bar is not None:
            if self.shows_pace:
                words += f", {self._rate(num_examples):,.0f} a minute"
            self._bar.update(self._task, completed=num_examples, description=words)
        elif _has_line(num_examples, self.total, _LONG if self.shows_pace else _SHORT):
            words += f": {num_examples} of {self.total} scenarios"
            if self.shows_pace:
                rate = self._rate(num_examples)
                hours, minutes = divmod(round((self.total - num_examples) / rate), 60)
                left = f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
                words += f", {rate:,.0f} a minute, {left} left"
            self.console.print(words)

    def _rate(self, number: int) -> float:
        num_before, began = self._pace or (0, 0.0)
        return 60 * (number - num_before) / max(self.clock() - began, 1e-3)

    def found(self, violation: FoundViolation) -> None:
        """Print a violation in brief, as it was met."""
        self._print(violation, "if this run is cut off")
        self._keep(violation)

    def shrinking(self, identity: tuple[str, str], num_runs: int) -> None:
        """Print which violation is being shrunk, and in how many runs so far."""
        words = f"shrinking {identity[0]} ({identity[1]}), {num_runs} runs"
        if self._bar is not None:
            self._bar.update(self._task, description=words)
        elif num_runs == 1:
            self.console.print(f"shrinking {identity[0]} ({identity[1]})")

    def shrunk(self, violation: FoundViolation) -> None:
        """Print a violation that an earlier run has shrunk; the report prints the others."""
        if violation.violation.identity not in self._found:
            self._print(violation, "replay")
        self._keep(violation)

    def observed(
        self, feature: str, number: int, total: int, rating: Rating | None
    ) -> None:
        """Print a feature beyond the contract before it is played, and its rating later."""
        if number == 1 and rating is None:
            skip = " (--no-beyond skips this)" if self.can_skip_features else ""
            self.console.print(
                f"{counted(len(self._found), 'violation')} of the contract in "
                f"{counted(self._num_played, 'scenario')}; observing "
                f"{counted(total, 'feature')} beyond it{skip}"
            )
        if self._bar is not None:
            done, words = number - (rating is None), f"observing {feature}"
            self._bar.update(self._task, completed=done, total=total, description=words)
        elif self.names_features:
            # Features of one topic are in one line: `use: twice right, masked wrong`.
            topic, value = Feature.of(feature)
            if rating is not None:
                text = f" {rating}"
            elif topic == self._topic:
                text = f", {value}"
            else:
                self._end_line()
                text, self._topic = f"  {topic}: {value}", topic
            self.console.print(text, end="")
        elif rating is not None and _has_line(number, total, _SHORT):
            self.console.print(f"observing: {number} of {total} features")

    def _end_line(self) -> None:
        if self._topic:
            self.console.print()
        self._topic = ""

    def in_words(self, folder: object) -> str:
        """Write the report; say what is kept of violations and of scenarios, and where."""
        self._write()
        count = len(self._found)
        files = [path for path in (folder, self.json_path) if path is not None]
        places = " and ".join(["above", *(f"in {str(path)!r}" for path in files)])
        found = f"{counted(count, 'violation')} found so far: {places}" if count else ""
        more = "the same command goes on from here" if self.can_go_on else ""
        return "; ".join(words for words in (found, more) if words)

    def end(self) -> None:
        """Write nothing more: the whole report is about to be written."""
        self._so_far = None

    def _keep(self, violation: FoundViolation) -> None:
        self._found[violation.violation.identity] = violation
        self._write()

    def _write(self) -> None:
        """Write what was found until now; raise UsageError where that fails."""
        if self._so_far is not None and self.json_path is not None:
            report = replace(
                self._so_far,
                examples=self._num_played,
                seconds=time.monotonic() - self._began,
                violations=tuple(self._found.values()),
            )
            write_json(self.json_path, report.to_json())

    def _print(self, violation: FoundViolation, title: str) -> None:
        assert self._so_far is not None  # the search has begun
        found = explanation_of(violation, **self._so_far.names)
        self.console.print(f"FOUND {found.title}: {found.summary}")
        self.console.print(f"  {title}: {found.replay}")


def _has_line(number: int, total: int, most: int) -> bool:
    """Tell whether progress has a line at a number, of so many lines at most."""
    return number % max(_LEAST_A_LINE, -(-total // most)) == 0
