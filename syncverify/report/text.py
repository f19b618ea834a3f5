"""The words of a search: its verdict, its scenarios, and what is said in brief."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from syncverify.judge.evidence import Event
from syncverify.plain_text import counted, named
from syncverify.replay_line import replay_line
from syncverify.report.account import MAX_LINES, count_of_violations, fitted
from syncverify.report.evidence import details
from syncverify.report.hints import hint
from syncverify.report.observed import ObservedFeature, names_of_wrong, with_rating
from syncverify.report.report import Report
from syncverify.scenario import specs
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES, PLAIN, meaning
from syncverify.scenario.layout import mesh_of
from syncverify.scenario.scenario import Scenario
from syncverify.trace.source_lines import CodeLine, with_code

_UNSHARDED = {
    specs.REPLICATE: "Replicate",
    specs.PARTIAL: "Partial gradient",
    specs.ABSENT: "not its mesh",
}
SMALLEST: Final = "smallest scenario"
SCENARIO: Final = "scenario"
_MIN_SPAN: Final = 3  # parameters that share a line
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


def verdict(report: Report) -> str:
    """Return the last line of a report: violations, or features that fail it, and scope."""
    scope = f"{counted(report.examples, 'scenario')} on {report.backend}"
    if report.is_replay:
        scope = f"replay of {scope}"
    else:
        # A search that lost its process does not know its time.
        took = f", {report.seconds:.1f} s" if report.seconds else ""
        scope += f", seed {report.seed}{took}"
    found = len(report.violations)
    if found:
        return f"{count_of_violations(found)}: {report.subject} ({scope})"
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


def events_with_code(
    events: Iterable[Event], shown: set[CodeLine], title: str = ""
) -> list[str]:
    """Put the lines of code behind each event under it, those that were not shown before."""
    lines = list[str]()
    for event in events:
        lines.append(f"  {title:<11} {event.words}")
        new = [line for line in with_code(event.origins) if line not in shown]
        shown.update(new)
        lines += [f"{'':<16}{line}" for line in new]
    return lines


def scenario_lines(
    scenario: Scenario, tensors: str = "dtensor", title: str = SCENARIO
) -> Iterator[str]:
    """Describe a scenario in lines: parameters that differ in their names alone share one.

    `tensors` is that of the contract: `local` parameters have no placements.
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
