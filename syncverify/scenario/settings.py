"""The settings of each face of syncverify, each declared once: name, type, default, meaning, option.

A dataclass here is a face: a command, and `Settings` also `verify()`, `[tool.syncverify]` and the
options `--syncverify-NAME` of pytest. Each field has a row, which says how commands and files take
it. This module imports no torch: help and a bad argument need none.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from syncverify.scenario import bounds

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase

    from syncverify.progress import Progress
    from syncverify.scenario.contract import ContractChoice

# Names of NCCL in torch; see Note [Names of NCCL] in `syncverify/sim/device/nccl_names.py`.
NCCL_NAMES = ("nccl", "nccl2", "nccl-lazy", "nccl-legacy")
BACKEND_NAMES = ("sim", "streams", "gloo", *NCCL_NAMES, "fake")
# Values of `--format`, with what each prints beside the text; `syncverify/report/annotations.py`
# has a writer for each.
REPORT_FORMATS = {
    "text": "",
    "github": "also annotate each violation at its line of code.",
}
RECIPE_NAMES = ("ddp", "hooks", "optimizer", "globals")  # of `syncverify init`
# Data that a training is played with, beside its own batch.
DATA = (
    "plain", "unequal-tokens", "padding", "overflow", "local-overflow", "nan", "all-ones",
)  # fmt: skip

DEFAULT_RANKS = 4  # largest world
# Features beyond the contract: scenarios of each feature, and runs to simplify the worst.
OBSERVED_SCENARIOS = 3
OBSERVED_SIMPLER = 10
LATENCY_MICROSECONDS, GIGABYTES_PER_SECOND = 20.0, 50.0
# Time without progress after which a rank counts as hung. An import within a program takes
# seconds, and one of a script longer.
PROGRAM_HANG_TIMEOUT_SECONDS = 30.0
SCRIPT_HANG_TIMEOUT_SECONDS = 60.0
PROBED_EXAMPLES = 100  # plain scenarios of a probe
CONFIRMING_EXAMPLES = 150  # scenarios under the contract that a probe found
PROBED_SIMPLER = 60

# fmt: off
SettingKind = Literal[
    "argument", "arguments", "text", "choice", "integer", "number", "positive", "seconds",
    "percent", "file", "path", "folder", "folder or server", "flag", "object",
]
# fmt: on
_MAX_SEED: Final = 2**32  # short enough to type


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The row of a setting: how commands and files take it."""

    kind: SettingKind
    option: str = ""  # without dashes, "" for none; a short one follows with its dash
    meaning: str = ""  # one sentence
    metavar: str | None = None  # of the value in a help; None for that of the kind
    shown_default: str = ""  # default in words, where the value does not tell
    choices: tuple[str, ...] = BACKEND_NAMES
    least: int | None = 1
    most: int | None = None
    is_repeatable: bool = False
    is_of_project: bool = False  # whether `[tool.syncverify]` may have it
    is_of_tests: bool = False  # whether it is an option of pytest


def _row(
    kind: SettingKind, option: str, meaning: str, default: Any = None, **more: Any
) -> Any:
    """Return a field with its row."""
    row = Setting(kind=kind, option=option, meaning=meaning, **more)
    return field(default=default, metadata={"row": row})


def _flag(option: str, meaning: str) -> Any:
    return _row("flag", option, meaning, default=False)


def _several(kind: SettingKind, option: str, meaning: str, **more: Any) -> Any:
    return _row(kind, option, meaning, default=(), is_repeatable=True, **more)


def _place(kind: SettingKind = "argument", **default: Any) -> Any:
    """Return a field that a command takes by its place, without an option."""
    return field(metadata={"row": Setting(kind=kind)}, **default)


_IN_PROJECT: Final[dict[str, Any]] = {"is_of_project": True}
_IN_TESTS: Final[dict[str, Any]] = {"is_of_project": True, "is_of_tests": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a verification; `SETTINGS` has their rows."""

    # fmt: off
    contract: ContractChoice | None = _row(
        "text", "contract",
        "What SUBJECT promises: plain, everything, a built-in subject's name, or a TOML file.",
        metavar="NAME|FILE", shown_default="the subject's own, or plain", **_IN_TESTS)
    backend: str = _row("choice", "backend", "Where the ranks run.", "sim", **_IN_TESTS)
    ranks: int = _row(
        "integer", "ranks", "Worlds of up to this many ranks.", DEFAULT_RANKS,
        shown_default=str(DEFAULT_RANKS), **_IN_TESTS)
    examples: int = _row(
        "integer", "examples", "Scenarios to play.", 200, most=bounds.MAX_COUNT, **_IN_TESTS)
    seed: int | None = _row(
        "integer", "seed", "Same seed, same scenarios.", least=0,
        shown_default="drawn and printed; 0 with --cluster", **_IN_TESTS)
    schedules: str = _row(
        "text", "schedules", "Timings to play where they matter; at most N runs of a scenario.",
        "drawn", metavar="default|drawn|all[:N]|pct[:N]", **_IN_PROJECT)
    time_limit_seconds: float | None = _row(
        "seconds", "time-limit", "Start no scenario after so many seconds.", **_IN_TESTS)
    jobs: int = _row(
        "integer", "jobs", "Processes that search in parallel; same seed and jobs, same report.",
        1, most=bounds.MAX_JOBS, **_IN_PROJECT)
    database: ExampleDatabase | Path | str | None = _row(
        "folder or server", "database",
        "Keep violations here, such as in .syncverify; the next run plays them first.",
        metavar="FOLDER|redis://HOST", **_IN_PROJECT)
    cluster: str | None = _row(
        "text", "cluster",
        "Search in shards, here or on dask.distributed; the same command goes on after an interrupt.",
        metavar="local[:N]|ADDRESS|FILE")
    require_coverage: float | None = _row(
        "percent", "require-coverage",
        "Fail unless scenarios had every feature value and this share of pairs.", **_IN_PROJECT)
    require_lines: float | None = _row(
        "percent", "fail-under-lines",
        "Fail unless this share of the lines in the subject's functions ran.", **_IN_PROJECT)
    stop_at_first: bool = _flag(
        "stop-at-first", "End at the first violation: shrink and report that one alone.")
    focus: str | None = _row(
        "text", "focus", "Give most scenarios a special value of a topic, such as bucket_cap.",
        metavar="TOPIC")
    exhaustive: bool = _flag(
        "exhaustive",
        "Play every scenario of a small scope, with all schedules; the same command goes on after "
        "an interrupt.")
    scope: str = _row(
        "text", "scope", "Bounds of --exhaustive; see docs/exhaustive.md.", "",
        metavar="NAME=N,...", shown_default="ranks=2,parameters=3,buckets=2,micro_batches=2,"
        "steps=2,words=event")
    beyond: bool = _flag(
        "", "Observe features beyond the contract; a contract with `fail_on_wrong` always does.")
    progress: Progress[Any] | None = _row(
        "object", "", "Receives each scenario, each violation and each run for shrinking.")
    # fmt: on

    def __post_init__(self) -> None:
        """Draw a seed if there is none; that of a campaign is 0, so that it can go on."""
        if self.seed is None:
            drawn = 0 if self.cluster else secrets.randbelow(_MAX_SEED)
            object.__setattr__(self, "seed", drawn)

    @property
    def random_seed(self) -> int:
        """Return the seed, drawn if none was given."""
        assert self.seed is not None  # `__post_init__`
        return self.seed

    @property
    def can_go_on(self) -> bool:
        """Tell whether the same search goes on where this one is interrupted."""
        return self.exhaustive or self.cluster is not None


SETTINGS: Final[Mapping[str, Setting]] = {
    each.name: each.metadata["row"] for each in fields(Settings)
}
DEFAULTS: Final[Mapping[str, Any]] = {
    each.name: each.default for each in fields(Settings)
}


# fmt: off
# No slots: a class with two bases may have those of one alone.
@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Where the report of a face goes, beside its text; last in each help."""

    json_path: Path | None = _row("file", "json", "Write the report here.")
    html_path: Path | None = _row(
        "file", "html", "Write the report here as a page with pictures.", metavar="PATH")
    sarif_path: Path | None = _row(
        "file", "sarif",
        "Write violations here as SARIF 2.1.0, which code hosts show beside the lines.")
    shown_as: str = _row(
        "choice", "format",
        " ".join(f"{name}: {words}" for name, words in REPORT_FORMATS.items() if words), "text",
        choices=tuple(REPORT_FORMATS))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ReportOptions, Settings):
    """`syncverify run`."""

    subject: str = _place()
    has_ranks: bool = False  # whether a number of ranks was given
    no_database: bool = _flag(
        "no-database",
        "Keep no violations and play none first; overrides the project's default.")
    no_beyond: bool = _flag(
        "no-beyond",
        "Skip features beyond the contract, which take two thirds of the time on sim.")
    trace_path: Path | None = _row(
        "file", "trace", "Write the first violation here, for Perfetto.", metavar="PATH")
    dumps_path: Path | None = _row(
        "path", "flight-recorder",
        "Write the first violation into this folder, as torch's recorder dumps it.",
        metavar="PATH")
    tables: bool = _flag(
        "tables",
        "Print tables: what scenarios contained, lines, features beyond the contract.")
    quiet: bool = _flag("quiet -q", "Print violations and the verdict alone.")


def _like_run(name: str, **changes: Any) -> Any:
    """Return a field like that of `syncverify run`, with another default or another row."""
    of_run = RunOptions.__dataclass_fields__[name]
    default = changes.pop("default", of_run.default)
    row = dataclasses.replace(of_run.metadata["row"], **changes)
    return field(default=default, metadata={"row": row})


def _ranks(**changes: Any) -> Any:
    return _like_run("ranks", shown_default="", **changes)


def _backend_with_data() -> Any:
    return _like_run("backend", choices=("sim", "streams", "gloo"))


def _seed() -> Any:
    return _like_run("seed", default=0, shown_default="")


def _count(option: str, meaning: str, default: int, least: int = 1) -> Any:
    return _row("integer", option, meaning, default, least=least, most=bounds.MAX_COUNT)


def _device(noun: str) -> Any:
    meaning = f"Device that torch names to the {noun}."
    return _row("choice", "device", meaning, "cuda", choices=("cuda", "cpu"))


def _names_torch() -> Any:
    return _flag("names-torch", "Name torch's own lines in the report too.")


def _hang_timeout(default: float) -> Any:
    meaning = "Time that a rank may compute without a call of torch, or that ranks only sleep."
    return _row("seconds", "hang-timeout", meaning, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(ReportOptions):
    """`syncverify replay`."""

    token_or_file: str = _place()
    subject: str = _place(default="")  # "" for that of a report
    contract: ContractChoice | None = _like_run("contract")
    backend: str = _like_run("backend", default="", shown_default="the report's, or sim")
    trace_path: Path | None = _like_run("trace_path")
    dumps_path: Path | None = _like_run("dumps_path")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """`syncverify probe`."""

    subject: str = _place()
    contract: ContractChoice | None = _like_run("contract")
    backend: str = _backend_with_data()
    ranks: int = _ranks()
    scenarios: int = _count("scenarios", "Scenarios of each feature.", 12)
    seed: int = _seed()
    output: Path | None = _row(
        "file", "output", "Write the contract that SUBJECT keeps here, as TOML.")
    json_path: Path | None = _like_run("json_path")
    shown_as: str = _like_run("shown_as")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsOptions:
    """`syncverify waits`."""

    subject: str = _place()
    others: tuple[str, ...] = _place("arguments")
    contract: ContractChoice | None = _like_run("contract")
    scope: str = _like_run(
        "scope", default="parameters=2,words=event+launch", shown_default="",
        meaning="Play all of this scope.")
    examples: int = _count("examples", "Drawn scenarios beside those of the scope.", 200)
    ranks: int = _ranks(meaning="Most ranks of a drawn scenario.")
    seed: int = _seed()
    latency: float = _row(
        "number", "latency", "Latency of the link of exposed times.", LATENCY_MICROSECONDS,
        metavar="MICROSECONDS")
    bandwidth: float = _row(
        "positive", "bandwidth", "Bandwidth of that link.", GIGABYTES_PER_SECOND, metavar="GB/S")
    time_limit_seconds: float | None = _like_run(
        "time_limit_seconds", meaning="Play no more after so many seconds.")
    jobs: int = _like_run("jobs", meaning="Processes that play; the answers are the same.")
    names_torch: bool = _flag(
        "torch-lines", "Name waits in torch's own Python code, such as that of DDP.")
    json_path: Path | None = _like_run("json_path", meaning="Write the answers here.")
    html_path: Path | None = _like_run(
        "html_path", meaning="Write them here as a page.", metavar=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions(ReportOptions):
    """`syncverify simulate`."""

    program: str = _place()
    ranks: int = _ranks(meaning="Number of ranks.")
    device: Literal["cuda", "cpu"] = _device("program")
    schedules: str = _row(
        "text", "schedules", "Orders of the ranks to play: default, all[:N], pct[:N].", "default",
        metavar="WHICH")
    schedule: str = _row(
        "text", "schedule",
        "Choices of the first run, as a report prints them: it plays that run again.", "",
        metavar="CHOICES")
    seed: int = _seed()
    names_torch: bool = _names_torch()
    hang_timeout: float = _hang_timeout(PROGRAM_HANG_TIMEOUT_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions(ReportOptions):
    """`syncverify record`."""

    nproc: int = _row(
        "integer", "nproc", "Number of ranks, each a process.", 2, most=512, metavar="N")
    is_module: bool = _flag("-m", "SCRIPT is a module, as after `python -m`.")
    device: Literal["cuda", "cpu"] = _device("script")
    out: Path | None = _row(
        "folder", "out", "Write the traces here.  [recorded-SCRIPT]", metavar="FOLDER")
    names_torch: bool = _names_torch()
    hang_timeout: float = _hang_timeout(SCRIPT_HANG_TIMEOUT_SECONDS)
    script: str = _place()
    arguments: tuple[str, ...] = _place("arguments")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions(ReportOptions):
    """`syncverify judge`."""

    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """`syncverify read`."""

    dumps: tuple[Path, ...]
    shown_as: str = _like_run("shown_as")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """`syncverify export`."""

    token_or_file: str = _place()
    subject: str = _place()
    contract: ContractChoice | None = _like_run("contract")
    script: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityOptions(ReportOptions):
    """`syncverify parity`; None for the value of the module."""

    module: str = _place()
    layouts: tuple[str, ...] = _several(
        "text", "layouts",
        "Axes and sizes, such as dp=2,tp=2, or all:N for all of N ranks at most; repeatable.",
        metavar="LAYOUT")
    steps: int | None = _row("integer", "steps", "Number of steps.", metavar="INTEGER RANGE")
    micro_batches: tuple[int, ...] = _several(
        "integer", "micro-batches", "Number of parts of each rank's batch; repeatable.",
        metavar="N")
    seed: int | None = _row(
        "integer", "seed", "Seed of model and data.", least=None, metavar="INTEGER")
    size: tuple[str, ...] = _several(
        "text", "size",
        "An argument of build() in the place of its default, such as layers=1; repeatable.",
        metavar="NAME=N")
    rows: int | None = _row(
        "integer", "rows", "Number of rows of the whole batch to train on.",
        metavar="INTEGER RANGE")
    data: tuple[str, ...] = _several(
        "choice", "data", "Beside the batch as it is, play these data alone; repeatable.",
        choices=DATA)
    time_limit: float | None = _row("seconds", "time-limit", "Start no layout after this time.")
    is_quiet: bool = _flag("quiet", "Print no progress.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BankOptions:
    """`syncverify bank`."""

    only: tuple[str, ...] = _several(
        "text", "only", "Play this entry only; may be repeated.", metavar="ID")
    backend: str = _backend_with_data()
    examples: int = _count(
        "examples", "Most scenarios of a defect; the first that shows it ends the search.", 500)
    twin_examples: int = _count(
        "twin-examples", "Least scenarios of a fixed twin, in which nothing may be found.", 10,
        least=0)
    diagnoses: bool = _flag(
        "diagnose", "Look for a fix of each defect, and for its guilty line in the report.")
    seed: int = _seed()
    jobs: int = _like_run("jobs", meaning="Processes that play entries in parallel.")
    json_path: Path | None = _like_run("json_path", meaning="Write the table here.")
# fmt: on
