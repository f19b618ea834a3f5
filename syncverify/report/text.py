"""Reports as plain text: each violation, its scenario and the line that replays it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from syncverify.judge.evidence import Event, FrozenGradient, WrongGradient
from syncverify.judge.properties.registry import STATEMENTS
from syncverify.judge.violation import Violation
from syncverify.plain_text import counted, named
from syncverify.replay_line import replay_line
from syncverify.report.evidence import (
    details,
    numbers_text,
    titled_events,
    witness_lines,
)
from syncverify.report.hints import advice, certainty, hint
from syncverify.report.observed import ObservedFeature, names_of_wrong, with_rating
from syncverify.report.report import Report
from syncverify.scenario import specs
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES, PLAIN, meaning
from syncverify.scenario.other_meshes import mesh_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Decision
from syncverify.search.found_violation import Fix, FoundViolation, RelatedViolation
from syncverify.trace.source_lines import CodeLine, with_code

T = TypeVar("T")
_UNSHARDED = {
    specs.REPLICATE: "Replicate",
    specs.PARTIAL: "Partial gradient",
    specs.ABSENT: "not its mesh",
}
SMALLEST: Final = "smallest scenario"
SCENARIO: Final = "scenario"
MAX_LINES: Final = 60  # of a violation: longer lists end in "... and N more"
_MIN_SPAN: Final = 3  # parameters that share a line
# Of each kind; more are a wall of text, and each is of one mistake.
_NUM_RELATED: Final = 3
# By topic: the word of a plain training step, and the title of other words.
_TITLES: Final = {
    "launch": ("current_stream", "streams: {}: "),
    "readiness": ("same", "order: "),
    "backward": (PLAIN, "backward: {}: "),
    "mesh": ("row_major", "mesh: "),
    "synchronizers": ("one", ""),
    "module": (PLAIN, "module: {}: "),
    "evaluation": ("none", "evaluation: "),
    "replicas": ("equal", "replicas: {}: "),
    "update": ("after_wait", "update: {}: "),
}
# The guarantee of each property of a scenario, by its name.


def verdict(report: Report) -> str:
    """Return the last line of a report: violations, or features that fail it, and scope."""
    scope = f"{counted(report.examples, 'scenario')} on {report.backend}"
    if report.is_replay:
        scope = f"replay of {scope}"
    else:
        scope += f", seed {report.seed}, {report.seconds:.1f} s"
    if report.violations:
        count = counted(len(report.violations), "VIOLATION").upper()
        return f"{count}: {report.subject} ({scope})"
    if report.most_steps:
        scope += f", up to {counted(report.most_steps, 'step')}"
    title = "WRONG BEYOND THE CONTRACT" if report.has_failed else "NO VIOLATION"
    of = f" of {report.contract}" if report.contract else ""
    words = f"{title}: {report.subject} held all properties{of} ({scope})"
    if report.bound:
        words += f"; {report.bound}"
    else:
        words += report.summary.clause_of_missing_values()
    if report.verifies_nothing:
        words = f"NOTHING VERIFIED: {report.subject} ({scope})"
    return words + (
        f"; beyond it {names_of_wrong(report.beyond)}" if report.has_failed else ""
    )


def diagnosis(report: Report) -> str:
    """Describe every violation of a report, or the wrong features that fail it, to print."""
    if report.always_raises and len(report.violations) == 1:
        return "\n".join([*always_raised(report), "", verdict(report)])
    blocks = [
        violation_text(entry, **report.names, title=title)
        for title, entry in numbered("VIOLATION", report.violations)
    ]
    if report.has_failed and not blocks:
        blocks.append("\n".join(wrong_in_full(report.beyond)).rstrip())
    end = [str(report.not_tried)] if report.not_tried else []
    return "\n\n".join([*blocks, "\n".join([*end, verdict(report)])])


def wrong_in_full(observed: Sequence[ObservedFeature]) -> list[str]:
    """Describe the wrong features on one screen: by diagnoses, and in a line where none fits."""
    listed = with_rating(observed, "wrong")
    room = MAX_LINES - len(listed) - 2  # an empty line and the verdict follow
    full, brief = list[str](), list[str]()
    for number, each in enumerate(listed, start=1):
        title = f"WRONG {number} of {len(listed)}: {each.feature}, beyond the contract"
        lines = [title, *each.diagnosis.splitlines(), ""]
        if len(full) + len(lines) <= room:
            full += lines
        else:
            place = f"syncverify explain report.json#wrong/{number}"
            brief.append(f"{title}: {each.summary}: {place}")
    return fitted([*full, brief], MAX_LINES - 2)


def numbered(word: str, found: Sequence[T]) -> Iterator[tuple[str, T]]:
    """Yield findings with their titles: a word, and a number unless there is one alone."""
    for number, each in enumerate(found, start=1):
        yield word if len(found) == 1 else f"{word} {number} of {len(found)}", each


def heading(title: str, violation: Violation, statement: str) -> list[str]:
    """Return the first lines of a violation: its title, the guarantee that it breaks, a summary."""
    name = f"{title}: {violation.property} ({violation.cause})"
    return [name, f"  {statement}", "", f"  {violation.summary}"]


def always_raised(report: Report) -> Iterator[str]:
    """Describe in few lines a class that cannot be made or bound in any scenario."""
    (entry,) = report.violations
    violation = entry.violation
    yield f"VIOLATION: {violation.property} ({violation.cause}): {violation.summary}"
    yield from (f"  at {each.words}" for each in details(violation.evidence)[:1])
    left = f"; not tried: {report.not_tried.parts}" if report.not_tried else ""
    yield f"  all {counted(report.examples, 'scenario')} raised it at this line{left}"
    yield f"  hint:   {hint(violation.cause, violation.evidence)}"
    yield f"  replay: {replay_line(entry.token, **report.names)}"


def brief(
    entry: FoundViolation,
    subject: str,
    backend: str,
    replay_title: str,
    contract: str = "",
) -> Iterator[str]:
    """Describe a violation in two lines, while the search goes on."""
    violation = entry.violation
    yield f"FOUND {violation.property} ({violation.cause}): {violation.summary}"
    yield f"  {replay_title}: {replay_line(entry.token, subject, backend, contract)}"


def violation_text(
    entry: FoundViolation,
    *,
    subject: str,
    backend: str,
    title: str = "VIOLATION",
    contract: str = "",
    scenario_title: str = "",
) -> str:
    """Describe one violation in lines; subject, backend, contract are for its replay line."""
    violation, cause = entry.violation, entry.violation.cause
    shrunk = SMALLEST if entry.is_smallest else SCENARIO
    if entry.not_shrunk:
        shrunk = f"{SCENARIO}, not shrunk ({entry.not_shrunk})"
    titled = scenario_title or shrunk
    run, *parameters = scenario_lines(entry.scenario, entry.tensors, titled)
    seen = [*_what_was_seen(entry)]
    deciders = () if entry.fix else entry.deciders
    consequences = [each for each in entry.related if each.is_consequence]
    forms = [each for each in entry.related if not each.is_consequence]
    return "\n".join(
        fitted(
            [
                *heading(title, violation, STATEMENTS[violation.property]),
                *seen,
                _deciders(deciders, [violation.summary, *seen]),
                f"  seen on:    {seen_on(violation.ranks, violation.parameters)}",
                _related("then", consequences),
                _related("also shows as", forms),
                "",
                f"  {run}",
                [f"  {line}" for line in parameters],
                [f"  {line}" for line in schedule_lines(entry.decisions)],
                "",
                f"  cause:      {cause}, {certainty(cause, violation.evidence)}",
                *_fix(entry.fix),
                f"  hint:       {advice(entry)}",
                f"  replay:     {replay_line(entry.token, subject, backend, contract)}",
            ]
        )
    )


def _what_was_seen(entry: FoundViolation) -> Iterator[list[str] | str]:
    """Yield all lines that belong to the summary, each line once."""
    evidence, shown = entry.violation.evidence, set[CodeLine]()
    yield events_with_code(
        [event for event in evidence.events if not event.words], shown
    )[1:]
    if isinstance(evidence, WrongGradient):
        yield f"  {'expected:':<11} {numbers_text(evidence.expected)}"
    if isinstance(evidence, WrongGradient | FrozenGradient):
        yield f"  {'observed:':<11} {numbers_text(evidence.observed)}"
    for title, events in titled_events(evidence):
        if title != "remedy:" or not (entry.fix or entry.left_over):
            yield events_with_code(events, shown, title)
    yield titled("witness:", witness_lines(entry.witness))
    about = f"they wrote memory or communicated on rank {evidence.rank}, step {evidence.step}"
    yield titled("lines:", (each for each in entry.acts if each not in shown), about)
    yield titled("missing at:", entry.left_out)
    rank = min(entry.violation.ranks, default=0)
    are = "it is" if len(entry.left_over) == 1 else "they are"
    yield titled(
        "left over:",
        (each.text for each in entry.left_over),
        f"on rank {rank}; the violation disappears if {are} reset at the start of each step",
    )


def titled(title: str, items: Iterable[object], about: str = "") -> list[str]:
    """Return items below each other, the title before the first one; none without items."""
    texts = [*map(str, items)]
    texts += [f"({about})"] if texts and about else []
    return [
        f"  {'' if number else title:<11} {text}" for number, text in enumerate(texts)
    ]


def events_with_code(
    events: Iterable[Event], shown: set[CodeLine], title: str = "", indent: str = "  "
) -> list[str]:
    """Put the lines of code behind each event under it, those that were not shown before."""
    lines = list[str]()
    for event in events:
        lines.append(f"  {title:<11} {event.words}")
        new = [line for line in with_code(event.origins) if line not in shown]
        shown.update(new)
        lines += [f"{'':<14}{indent}{line}" for line in new]
    return lines


def _fix(fix: Fix | None) -> Iterator[str]:
    if fix is not None:
        yield (
            f"  fix:        at {fix.place}: fixes this scenario; {fix.num_others} other "
            f"scenarios on up to {fix.max_ranks} ranks show no new violation and cost "
            "no more"
        )
        yield from (f"              {line}" for line in fix.lines)


def scenario_lines(
    scenario: Scenario, tensors: str = "dtensor", title: str = SCENARIO
) -> Iterator[str]:
    """Describe a scenario, one line for the run and one per parameter.

    Three and more parameters that differ in their names alone share a line.

    `tensors` is that of the contract: `local` parameters have no placements. `title` says
    whether it is the smallest.
    """
    counts, mesh = ", ".join(map(str, scenario.accumulations)), scenario.mesh
    yield f"{title}: {counted(mesh.num_ranks, 'rank')}, mesh ({_axes(mesh)})"
    yield f"  micro-batches per step: {counts}; bucket cap {scenario.bucket_cap_bytes} bytes"
    for step, event in enumerate(scenario.events):
        if event != PLAIN:
            yield f"  step {step}: {event}: {meaning('event', event)}"
    for topic, (plain_word, title) in _TITLES.items():
        word = mesh.order if topic == "mesh" else getattr(scenario, topic, "")
        if word != plain_word:
            of_mesh = FEATURES.get(Feature(topic, word)) if topic == "mesh" else None
            about = of_mesh.meaning if of_mesh else meaning(topic, word)
            yield f"  {title.format(word)}{about}"
    unnamed = functools.partial(_parameter, mesh=mesh, tensors=tensors)
    for words, alike in itertools.groupby(scenario.parameters, unnamed):
        names = [spec.name for spec in alike]
        if len(names) >= _MIN_SPAN:
            names = [f"{names[0]} to {names[-1]}, {len(names)} parameters"]
        for name in names:
            yield f"  {name}: {words}"


def schedule_lines(decisions: Sequence[Decision]) -> Iterator[str]:
    """Yield one line per decision about timing that differs from the default."""
    for number, decision in enumerate(decisions):
        if decision.chosen:
            yield f"  timing, decision {number}: {decision.meaning}"


def _axes(mesh: specs.MeshSpec) -> str:
    names = mesh.axis_names or ("",) * len(mesh.shape)
    return ", ".join(
        f"{name}={size}" if name else str(size)
        for name, size in zip(names, mesh.shape, strict=True)
    )


def _parameter(spec: specs.ParameterSpec, mesh: specs.MeshSpec, tensors: str) -> str:
    if tensors == "local":
        placed = "ordinary tensor"
    elif spec.placements is None:
        placed = "ordinary tensor, not reduced"
    else:
        placed = f"placements ({', '.join(map(_placement, spec.placements))})"
    own_axes = _axes(mesh_of(mesh, spec))
    words = {
        f"shape {spec.global_shape}, {spec.dtype}": True,
        f"gradient in {spec.grad_dtype}": spec.grad_dtype is not None,
        placed: True,
        f"on the {spec.on_mesh} mesh ({own_axes})": spec.on_mesh != specs.OWN_MESH,
        "frozen": not spec.requires_grad,
        f"listed {spec.num_listed} times": spec.num_listed > 1,
        "listed in the next group too": spec.also_in_next_group,
        spec.memory_format: spec.memory_format != "contiguous",
        f"used {spec.used}": spec.used != "always",
        f"use {spec.use}: {meaning('use', spec.use)}": spec.use != PLAIN,
        f"gradient: {meaning('gradient', spec.gradient)}": spec.gradient != "finite",
        f"group {spec.group}": True,
    }
    return ", ".join(text for text, is_said in words.items() if is_said)


def _placement(code: str) -> str:
    dim = specs.sharded_dim(code)
    if dim is None:
        return _UNSHARDED[code]
    return f"StridedShard({dim})" if specs.is_strided(code) else f"Shard({dim})"


def seen_on(ranks: Sequence[int], parameters: Sequence[str] = ()) -> str:
    """Return the ranks and the parameters of a violation in words."""
    words = named("rank", ranks) if ranks else "all ranks"
    return f"{words}; {named('parameter', parameters)}" if parameters else words


def _deciders(lines: Sequence[CodeLine], above: Iterable[list[str] | str]) -> list[str]:
    """Return lines that ran here alone, without those whose place stands above."""
    shown = "\n".join(
        each if isinstance(each, str) else "\n".join(each) for each in above
    )
    new = [each for each in lines if str(each.line) not in shown]
    return ["  ran only where it fails:", *titled("", new)] if new else []


def _related(title: str, related: Sequence[RelatedViolation]) -> list[str]:
    """Return a line for each violation that another one explains."""
    lines = [
        f"  {title}: {other.property} ({other.cause}): {other.summary}"
        for other in related[:_NUM_RELATED]
    ]
    if num_more := len(related[_NUM_RELATED:]):
        lines.append(f"  {title}: ... and {num_more} more (--json PATH lists them)")
    return lines


def fitted(
    sections: Sequence[list[str] | str], num_lines: int = MAX_LINES
) -> list[str]:
    """Return lines and lists of lines, joined; the longest lists are cut until all of it fits.

    Single lines are never cut, and each list keeps its first two lines, so that many lists may
    still be longer than `num_lines`.
    """
    lists = [section for section in sections if isinstance(section, list)]
    room = num_lines - (len(sections) - len(lists))
    limit = _limit([len(each) for each in lists], room)
    lines = list[str]()
    for section in sections:
        lines += [section] if isinstance(section, str) else _cut(section, limit)
    return lines


def _limit(lengths: list[int], room: int) -> int:
    """Return the largest length of a list with which all lists fit."""
    limit = max(lengths, default=0)
    while limit > 3 and sum(min(length, limit) for length in lengths) > room:
        limit -= 1
    return limit


def _cut(lines: list[str], limit: int) -> list[str]:
    if len(lines) <= limit:
        return lines
    indent = " " * (len(lines[-1]) - len(lines[-1].lstrip()))
    return [*lines[: limit - 1], f"{indent}... and {len(lines) - limit + 1} more"]
