"""The settings of a verification, and other names and defaults that the help of a command shows.

`verify()` takes them as keyword arguments, `syncverify run` as options, a project as keys of
`[tool.syncverify]`, and pytest as options `--syncverify-NAME`. This module imports no torch:
help and a bad argument need none.
"""

from __future__ import annotations

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
# Values of `--NAME FILE`: documents of a run. `report/documents.py` has a writer for each.
REPORT_DOCUMENTS = {
    "sarif": "Write violations here as SARIF 2.1.0, which code hosts show beside the lines.",
}
RECIPE_NAMES = ("ddp", "hooks", "optimizer", "globals")  # of `syncverify init`

DEFAULT_RANKS = 4  # largest world

DEFAULT_BANK_EXAMPLES = 500  # scenarios of one defect, at most
DEFAULT_TWIN_EXAMPLES = 10  # scenarios of one fixed twin, at least
DEFAULT_BANK_SEED = 0

# Features beyond the contract: scenarios of each feature, and runs to simplify the worst.
OBSERVED_SCENARIOS = 3
OBSERVED_SIMPLER = 10
WAITS_EXAMPLES = 200  # drawn scenarios of `syncverify waits`, beside those of its scope
WAITS_SCOPE = "parameters=2,words=event+launch"
LATENCY_MICROSECONDS, GIGABYTES_PER_SECOND = 20.0, 50.0
# Time without progress after which a rank counts as hung. An import within a program takes
# seconds, and one of a script longer.
PROGRAM_HANG_TIMEOUT_SECONDS = 30.0
SCRIPT_HANG_TIMEOUT_SECONDS = 60.0
PROBED_EXAMPLES = 100  # plain scenarios of a probe
CONFIRMING_EXAMPLES = 150  # scenarios under the contract that a probe found
PROBED_SCENARIOS = 12
PROBED_SIMPLER = 60

SettingKind = Literal[
    "text", "choice", "integer", "seconds", "percent", "folder", "flag", "object"
]
_MAX_SEED: Final = 2**32  # short enough to type


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting in words, as commands and files take it.

    Attributes:
        kind: SettingKind of its value.
        meaning: One sentence.
        option: Name of its option, without dashes at the start; "" for none.
        metavar: Place of the value in a help; None for that of the kind.
        default: Default in words, where the value does not tell.
        least: Smallest integer.
        most: Largest integer; None for none.
        is_of_project: Whether `[tool.syncverify]` may have it.
        is_of_tests: Whether it is an option of pytest.
    """

    kind: SettingKind
    meaning: str
    option: str = ""
    metavar: str | None = None
    default: str = ""
    least: int = 1
    most: int | None = None
    is_of_project: bool = False
    is_of_tests: bool = False


def _words(
    kind: SettingKind, option: str, meaning: str, **more: Any
) -> dict[str, Setting]:
    return {"setting": Setting(kind=kind, meaning=meaning, option=option, **more)}


_IN_PROJECT: Final[dict[str, Any]] = {"is_of_project": True}
_IN_TESTS: Final[dict[str, Any]] = {"is_of_project": True, "is_of_tests": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a verification; `SETTINGS` has them in words."""

    # fmt: off
    contract: ContractChoice | None = field(default=None, metadata=_words(
        "text", "contract",
        "What SUBJECT promises: plain, everything, a built-in subject's name, or a TOML file.",
        metavar="NAME|FILE", default="the subject's own, or plain", **_IN_TESTS))
    backend: str = field(default="sim", metadata=_words(
        "choice", "backend", "Where the ranks run.", **_IN_TESTS))
    ranks: int = field(default=DEFAULT_RANKS, metadata=_words(
        "integer", "ranks", "Worlds of up to this many ranks.", **_IN_TESTS))
    examples: int = field(default=200, metadata=_words(
        "integer", "examples", "Scenarios to play.", most=bounds.MAX_COUNT, **_IN_TESTS))
    seed: int | None = field(default=None, metadata=_words(
        "integer", "seed", "Same seed, same scenarios.", default="drawn and printed; 0 with --cluster", least=0,
        **_IN_TESTS))
    schedules: str = field(default="drawn", metadata=_words(
        "text", "schedules", "Timings to play where they matter; at most N runs of a scenario.",
        metavar="default|drawn|all[:N]|pct[:N]", **_IN_PROJECT))
    time_limit_seconds: float | None = field(default=None, metadata=_words(
        "seconds", "time-limit", "Start no scenario after so many seconds.", **_IN_TESTS))
    jobs: int = field(default=1, metadata=_words(
        "integer", "jobs", "Processes that search in parallel; same seed and jobs, same report.",
        most=bounds.MAX_JOBS, **_IN_PROJECT))
    database: ExampleDatabase | Path | str | None = field(default=None, metadata=_words(
        "folder", "database",
        "Keep violations here, such as in .syncverify; the next run plays them first.",
        metavar="FOLDER|redis://HOST", **_IN_PROJECT))
    cluster: str | None = field(default=None, metadata=_words(
        "text", "cluster",
        "Search in shards on dask.distributed; the same command goes on after an interrupt.",
        metavar="local[:N]|ADDRESS|FILE"))
    require_coverage: float | None = field(default=None, metadata=_words(
        "percent", "require-coverage",
        "Fail unless scenarios had every feature value and this share of pairs.", **_IN_PROJECT))
    require_lines: float | None = field(default=None, metadata=_words(
        "percent", "fail-under-lines",
        "Fail unless this share of the lines in the subject's functions ran.",
        **_IN_PROJECT))
    stop_at_first: bool = field(default=False, metadata=_words(
        "flag", "stop-at-first", "End at the first violation: shrink and report that one alone."))
    focus: str | None = field(default=None, metadata=_words(
        "text", "focus", "Give most scenarios a special value of a topic, such as bucket_cap.",
        metavar="TOPIC"))
    exhaustive: bool = field(default=False, metadata=_words(
        "flag", "exhaustive",
        "Play every scenario of a small scope, with all schedules; the same command goes on after "
        "an interrupt."))
    scope: str = field(default="", metadata=_words(
        "text", "scope", "Bounds of --exhaustive; see docs/exhaustive.md.",
        metavar="NAME=N,...", default="ranks=2,parameters=3,buckets=2,micro_batches=2,steps=2,"
        "words=event"))
    beyond: bool = field(default=False, metadata=_words(
        "flag", "",
        "Observe features beyond the contract; a contract with `fail_on_wrong` always does."))
    progress: Progress[Any] | None = field(default=None, metadata=_words(
        "object", "", "Receives each scenario, each violation and each run for shrinking."))
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
    each.name: each.metadata["setting"] for each in fields(Settings)
}
DEFAULTS: Final[Mapping[str, Any]] = {
    each.name: each.default for each in fields(Settings)
}
