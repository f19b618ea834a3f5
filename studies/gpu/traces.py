"""Streams of operators as torch reports them, beside the trace of the simulated machine.

Note [What is compared]
    The simulated machine tells on which stream autograd would queue each operator. On a GPU,
    the stream that is current when an operator is dispatched is the stream on which it is
    queued. Both lists are in host order, and are compared rank by rank. Names of streams are
    given in order of first use, since torch has no names. `bind()` is left out: it reads
    meshes on the host, of which `sim` makes copies.

    An operator on one side alone has no counterpart, which is a failure. One case is known,
    and in none of these scenarios: with reentrant checkpoints on several streams, `sim`
    copies gradients that torch takes over, because its model of the engine holds one more
    reference.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import torch

from studies.documents import table
from studies.gpu.part import Part, Result
from studies.gpu.real_streams.playing import judged, play_on_streams
from studies.gpu.shared_device import drawn
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.records import Access

SCENARIOS = 5
LAUNCHES = ("current_stream", "step_on_side_stream", "parameter_streams")
_READ_OF_OPTIMIZER = "read"  # the rank program's record, which is no operator


class Compared(NamedTuple):
    """The operators of one rank, on `sim` and here.

    Attributes:
        alone: Place and name of each operator without a counterpart.
        differing: A line about each that has one on another stream.
    """

    alone: list[tuple[str, str]]
    differing: list[str]


def run(device: torch.device, num_scenarios: int = SCENARIOS) -> Result:
    """Play scenarios of our synchronizer, each once on `sim` and once on real streams."""
    subject = resolve("synchronizer")
    rows: list[Sequence[str]] = []
    wrong: list[str] = []
    total = 0
    for number, scenario in enumerate(_scenarios(subject, num_scenarios)):
        expected = simulated(scenario, subject)
        count = sum(map(len, expected))
        total += count
        row = [str(number), scenario.launch, str(count)]
        if device.type == "cuda":
            found = play_on_streams(scenario, subject, device)
            ranks = [
                compared(one, _renamed(other))
                for one, other in zip(expected, found.operators, strict=True)
            ]
            different = [each for own in ranks for each in own.differing]
            differences = judged(scenario, found.run, subject) + different[:3]
            wrong += [f"scenario {number}: {each}" for each in differences]
            alone = Counter(each for own in ranks for each in own.alone)
            wrong += [
                f"scenario {number}, {place} alone: {count} times `{name}`"
                for (place, name), count in alone.items()
            ]
            row += [str(alone.total()), str(len(different))]
        else:
            row += ["not run"] * 2
        rows.append(row)
    header = ("scenario", "streams of the caller", "operators on `sim`", "without a counterpart",
              "on other streams")  # fmt: skip
    result = Result.of(wrong, device, f"{total} operators of {len(rows)} scenarios")
    return replace(result, lines=[*table(header, rows), "", *result.lines])


def simulated(scenario: Scenario, subject: Subject) -> list[list[tuple[str, str]]]:
    """Return the name and stream of each operator, by rank, as `sim` records them."""
    recorders = [
        RankRecorder(keeps_everything=True) for _ in range(scenario.mesh.num_ranks)
    ]
    run = SimBackend().run(scenario, subject, DEFAULT_SCHEDULE, recorders)
    return [
        _renamed(
            (event.operator, event.stream)
            for event in rank.trace
            if isinstance(event, Access)
            and event.operator != _READ_OF_OPTIMIZER
            and event.moment.phase != "bind"
        )
        for rank in run.ranks
    ]


def compared(
    expected: Sequence[tuple[str, str]], found: Sequence[tuple[str, str]]
) -> Compared:
    """Compare the operators of one rank."""
    one, other = ([name for name, _ in own] for own in (expected, found))
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    pairs = [
        (block.a + n, block.b + n)
        for block in matcher.get_matching_blocks()
        for n in range(block.size)
    ]
    differing = [
        f"operator {a}, {expected[a][0]}: {expected[a][1]} on `sim`, {found[b][1]} here"
        for a, b in pairs
        if expected[a][1] != found[b][1]
    ]
    alone = [
        (place, name)
        for place, names, matched in (
            ("on `sim`", one, {a for a, _ in pairs}),
            ("here", other, {b for _, b in pairs}),
        )
        for index, name in enumerate(names)
        if index not in matched
    ]
    return Compared(alone, differing)


def _renamed(operators: Any) -> list[tuple[str, str]]:
    """Name streams by their first use."""
    names: dict[str, str] = {}
    return [
        (operator, names.setdefault(stream, f"stream {len(names)}"))
        for operator, stream in operators
    ]


def _scenarios(subject: Subject, count: int) -> list[Scenario]:
    """Return scenarios of two ranks and more, with the streams of a caller in turn."""
    drawn_ones = [each for each in drawn(subject, 4 * count) if each.mesh.num_ranks > 1]
    return [
        replace(scenario, launch=LAUNCHES[number % len(LAUNCHES)])
        for number, scenario in enumerate(drawn_ones[:count])
    ]


PART = Part(
    "traces",
    "Streams as torch reports them",
    "On which stream is each operator of the subject and of autograd queued: do the trace of "
    "`sim` and torch agree, operator by operator? On a CPU, `sim` alone plays.",
    run,
)
