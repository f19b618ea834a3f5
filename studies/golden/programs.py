"""The programs that are played, and the transcript of each: lines, by part."""

import functools
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from studies.bank_rows import reproducer_of
from studies.golden.plain import lines, plain
from studies.pages.followed import followed
from syncverify.faces.scripts.recording import judge, record
from syncverify.faces.scripts.script import Script
from syncverify.faces.simulation.program import Device
from syncverify.faces.simulation.simulate import simulate
from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.described import described, layouts_of
from syncverify.faces.whole_step.outcome import FoundMistake, LayoutPlay
from syncverify.faces.whole_step.parity import comparisons
from syncverify.judge.properties import judge_run
from syncverify.judge.violation import Violation
from syncverify.playing.program.modules.layers import provide_layers
from syncverify.playing.sim import SimBackend
from syncverify.scenario.replay_token import Reproducer, encode
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing
from syncverify.search.isolation import default_torch_state
from syncverify.sim.turns.decisions import Decisions
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.subject import Subject, resolve
from syncverify.subjects.subject_path import imported
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Run

# Lines of each part, by its name in a row.
Transcript = dict[str, list[str]]

_ROOT: Final = Path(__file__).parents[2]
_NUM_DRAWN, _TOGETHER, _NUM_DRAWN_OF_ENTRY, _RANKS, _SEED = 200, 20, 3, 4, 0
# Programs of `simulate`: number of ranks, and orders of the ranks.
_SIMULATED: Final = {
    "examples/simulated_step.py:step": (4, "default"),
    "examples/simulated_step.py:step_that_reads_early": (4, "pct:2"),
    "docs/any-program.md#job.py:logs_a_mean": (2, "default"),
    "docs/any-program.md#job.py:forgets_a_handle": (2, "default"),
    "docs/any-program.md#job.py:one_rank_is_early": (2, "all"),
}
# Scripts: number of ranks, the device that torch names to them, and arguments.
_SCRIPTS: Final[Mapping[str, tuple[int, Device, tuple[str, ...]]]] = {
    "docs/scripts.md#train.py": (2, "cuda", ()),
    "examples/train_gpt.py": (4, "cpu", ("--steps=1",)),
}
# Of its 18 layouts, which take minutes, two are played.
_LAYOUTS: Final = {"examples/parity/every_axis.py": ("pp=2", "ep=2")}
# Digests of lines of code, which `_trace` numbers.
_NAMES: Final = frozenset({"data_names"})
# Bytes of numbers that were rounded are those of one kind of processor.
_ROUNDED: Final = frozenset({"contents"})


@functools.cache
def programs() -> Mapping[str, Callable[[], Transcript]]:
    """Return the functions that play the programs, by `part/name`."""
    found = dict[str, Callable[[], Transcript]]()
    found["versions/python and torch"] = _versions
    for name in ("synchronizer", "ddp"):
        for first in range(0, _NUM_DRAWN, _TOGETHER):
            found[f"{name}/{first:03}"] = functools.partial(_built_in, name, first)
    for entry in entries():
        found[f"bank/{entry.name}"] = functools.partial(_of_bank, entry.name)
    found |= {f"simulate/{e}": functools.partial(_simulated, e) for e in _SIMULATED}
    found |= {f"parity/{e}": functools.partial(_compared, e) for e in _recipes()}
    return found | {f"record/{e}": functools.partial(_recorded, e) for e in _SCRIPTS}


def _versions() -> Transcript:
    """Return what transcripts depend on beside this repository."""
    python = ".".join(map(str, sys.version_info[:2]))
    return {"found": [f"python {python}", f"torch {torch.__version__}"]}


def _recipes() -> Iterator[str]:
    """Yield the files that describe a training."""
    folder = _ROOT / "examples"
    for file in (folder / "parity_gpt.py", *sorted(folder.glob("parity/*.py"))):
        yield str(file.relative_to(_ROOT))


def _built_in(name: str, first: int) -> Transcript:
    """Play some of the scenarios that are drawn for a built-in subject."""
    subject, scenarios = _scenarios_of(name)
    played = scenarios[first : first + _TOGETHER]
    return _together(_of_scenario(each, subject) for each in played)


@functools.cache
def _scenarios_of(name: str) -> tuple[Subject, list[Scenario]]:
    """Return a built-in subject with its scenarios."""
    subject = resolve(name)
    drawing = Drawing(subject.capabilities, _RANKS, _NUM_DRAWN, _SEED)
    return subject, drawing.drawn()


def _of_bank(name: str) -> Transcript:
    """Play a defect: the smallest scenario that shows it, then drawn ones."""
    entry = entry_of(name)
    subject, smallest = entry.defect(), reproducer_of(entry)
    first = [] if smallest is None else [smallest.scenario]
    count = 1 + _NUM_DRAWN_OF_ENTRY - len(first)
    drawing = Drawing(subject.capabilities, entry.max_ranks, count, _SEED)
    scenarios = [*first, *drawing.drawn()]
    return _together(_of_scenario(each, subject) for each in scenarios)


def _together(plays: Iterable[Transcript]) -> Transcript:
    """Return one transcript of many plays; a line names its play."""
    whole = Transcript()
    for number, transcript in enumerate(plays):
        for part, listed in transcript.items():
            whole.setdefault(part, []).extend(f"play {number} {e}" for e in listed)
    return whole


def _of_scenario(scenario: Scenario, subject: Subject) -> Transcript:
    """Play a scenario on a new backend, which records all accesses."""
    provide_layers(subject.capabilities)
    decisions = Decisions()
    with default_torch_state():
        run = SimBackend().run(scenario, subject, decisions)
        verdict = judge_run(scenario, run, subject.capabilities)
    return {
        "program": [encode(Reproducer("", "", scenario))],
        "turns": lines(decisions.turn_log),
        "trace": _trace(run),
        "values": [
            plain((rank, each))
            for rank, own in enumerate(run.ranks)
            for each in (*own.observations, own.bound)
        ],
        "leftovers": lines(each.leftovers for each in run.ranks),
        "held": lines((each.held, each.owned) for each in run.ranks),
        "fault": lines((run.fault, run.was_very_long)),
        "verdicts": [*map(_verdict, verdict.violations), plain(verdict.applied)],
        "found": [_identity(each) for each in verdict.violations],
    }


def _trace(run: Run | None, without: frozenset[str] = frozenset()) -> list[str]:
    """Return the records of all ranks, a line each, rank after rank.

    Names of data are digests of lines of code; here they are numbers, equal where the names are.
    """
    shown, numbers = list[str](), {"": "unknown data"}
    for rank, own in enumerate(run.ranks if run else ()):
        for each in own.trace:
            names = each.data_names if isinstance(each, CollectiveLaunch) else ()
            data = [numbers.setdefault(name, f"data {len(numbers)}") for name in names]
            shown.append(
                " ".join([f"rank {rank}", plain(each, without | _NAMES), *data])
            )
    return shown


def _identity(violation: Violation) -> str:
    return f"{violation.property} ({violation.cause})"


def _verdict(found: Violation) -> str:
    """Return a violation as facts: what, where, and how certain."""
    told = found.evidence
    place = (told.rank, told.step, told.micro_batch, found.ranks, found.parameters)
    certain = (type(told).__name__, told.is_proven, told.is_certain, len(told.events))
    return plain((_identity(found), *place, *certain))


def _simulated(path: str) -> Transcript:
    ranks, schedules = _SIMULATED[path]
    program = imported(_placed(path), "program")
    return _of_simulation(simulate(program, ranks, schedules=schedules))


def _recorded(path: str) -> Transcript:
    """Record a script; each rank has its trace in the order of its own process."""
    ranks, device, arguments = _SCRIPTS[path]
    script = Script(_placed(path), arguments)
    return _of_simulation(judge(record(script, ranks, device=device)))


@functools.cache
def _folder_of(page: str) -> tempfile.TemporaryDirectory[str]:
    """Return a folder with the files that a page of the documentation has."""
    folder = tempfile.TemporaryDirectory()
    followed((_ROOT / page).read_text("utf-8"), Path(folder.name), lambda *_: "")
    return folder


def _placed(path: str) -> str:
    """Return where a file of this repository is; `page.md#file` is written to a folder first."""
    page, _, file = path.partition("#")
    return f"{_folder_of(page).name}/{file}" if file else f"{_ROOT}/{path}"


def _of_simulation(played: Simulation) -> Transcript:
    found = [each.violation for each in played.violations]
    remarks = [(each.operation, each.ranks) for each in played.remarks]
    schedules = [each.schedule for each in played.violations]
    return {
        "program": [plain((played.num_ranks, played.device))],
        "turns": lines([played.num_runs, played.coverage, schedules]),
        "trace": _trace(played.run, _ROUNDED),
        "fault": lines([played.run and played.run.fault, bool(played.refused)]),
        "verdicts": [*map(_verdict, found), plain(remarks)],
        "found": [_identity(each) for each in found],
    }


def _compared(path: str) -> Transcript:
    """Compare a training with one rank; numbers that are counted stay, and no values."""
    training = described(imported(_placed(path), "module"))
    layouts = tuple(layouts_of(_LAYOUTS.get(path, ()))) or training.layouts
    *_, last = comparisons(replace(training, layouts=layouts), path)
    transcript = _together(_of_simulation(each.simulation) for each in last.plays)
    transcript["program"] += map(_setup, last.plays)
    transcript["verdicts"] += [*map(_counts, last.plays), *map(_mistake, last.mistakes)]
    transcript["found"] += [
        f"{each.finding.quantity.value} ({each.finding.cause.kind})"
        for each in last.mistakes
    ]
    return transcript


def _setup(play: LayoutPlay) -> str:
    word = play.variation and play.variation.word
    sizes = (play.num_micro_batches, play.num_rows)
    return plain((str(play.layout), *sizes, word, str(play.saved_on)))


def _counts(play: LayoutPlay) -> str:
    """Return how many values were compared, and which ones are wrong or special."""
    wrong = {name: each.num_wrong for name, each in play.worst.items()}
    kinds = {name: each.quantity for name, each in play.worst.items() if each.num_wrong}
    named = (play.zero, play.late, play.absent, play.added, play.returned_apart)
    return plain((play.num_values, wrong, kinds, named, play.unread, play.is_tried))


def _mistake(found: FoundMistake) -> str:
    finding = found.finding
    smallest = (str(found.layout), found.num_micro_batches, found.sizes, found.num_rows)
    values = [each.name for each in finding.differences]
    follows = [each.value for each in finding.follows]
    layouts = [*map(str, found.layouts)]
    what = (finding.quantity, finding.step, finding.cause.kind, values, follows)
    return plain((what, smallest, layouts, len(found.places)))
