"""Columns of the conformance table: synchronizers, and what was observed of each.

The observations of a column lie in `studies/results/conformance/NAME.json`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from syncverify.report.observed import EXPLAINED
from syncverify.scenario.feature_table import OPTIONAL

_NEWER: Final = "the feature is newer than the observations"
RESULTS = Path(__file__).parents[1] / "results" / "conformance"


@dataclass(frozen=True, slots=True)
class Column:
    """One synchronizer of the table.

    Attributes:
        name: Short name, at the head of the column.
        subject: The subject, as `syncverify` takes it.
        package: Package of the synchronizer; "" for ours.
        backend: Where the ranks run.
    """

    name: str
    subject: str
    package: str = "torch"
    backend: str = "sim"

    @property
    def file(self) -> Path:
        """Return the file of the observations."""
        return RESULTS / f"{self.name}.json"

    def installed(self) -> str | None:
        """Return the version of the package without a build number; None without one."""
        try:
            return version(self.package or "syncverify").partition("+")[0]
        except PackageNotFoundError:
            return None


def installed_torch() -> str:
    """Return the version of torch without a build number."""
    return version("torch").partition("+")[0]


def _built_in(names: str, package: str, backend: str = "sim") -> list[Column]:
    return [Column(name, name, package, backend) for name in names.split()]


COLUMNS: Final = [
    *_built_in("synchronizer", ""),
    Column("reduce_scatter", "studies.stand_ins.modes:ScattersAndGathers", ""),
    Column("comm_hook", "studies.stand_ins.modes:SumsInAHook", ""),
    Column("keep_none", "studies.stand_ins.modes:TellsWhatItUsed", ""),
    *_built_in("ddp ddp-bucket-view ddp-comm-hook ddp-find-unused", "torch"),
    Column(
        "ddp-static-graph", "studies.stand_ins.one_backward:StaticGraphOfOneBackward"
    ),
    *_built_in("replicate replicate-fsdp fsdp2 hsdp", "torch"),
    *_built_in("d9d", "d9d"),
    *_built_in("megatron megatron-shards", "megatron-core"),
    *_built_in("deepspeed-zero1 deepspeed-zero2", "deepspeed", "gloo"),
]


@dataclass(frozen=True, slots=True)
class Cell:
    """The observation of one feature.

    Attributes:
        feature: The feature, as `topic=value`.
        word: The worst word of a scenario.
        counts: Number of scenarios by word.
        reason: Why the feature was not tried.
        summary: One sentence about the simplest scenario that is neither right nor refused.
        token: Token of that scenario.
    """

    feature: str
    word: str
    counts: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    summary: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """The observations of one column.

    Attributes:
        column: The column.
        version: Version of the package.
        torch: Version of torch.
        seed: Seed of the scenarios.
        num_scenarios: Number of scenarios of each feature, at most.
        plain: Tokens and sentences of violations in plain training steps.
        cells: One observation for each feature.
        date: Day of the observations.
        python: Version of Python, as "3.12".
    """

    column: Column
    version: str
    torch: str
    seed: int
    num_scenarios: int
    plain: Mapping[str, str]
    cells: tuple[Cell, ...]
    date: str = ""
    python: str = ""

    def is_outdated(self) -> bool:
        """Tell whether this Python has a newer release of the package, or of torch."""
        installed = self.column.installed()
        return installed is not None and (
            Version(self.version) < Version(installed)
            or Version(self.torch) < Version(installed_torch())
        )

    def is_of_these_releases(self) -> bool:
        """Tell whether this Python has the releases that were observed."""
        installed = self.column.installed(), installed_torch()
        return installed == (self.version, self.torch)

    def stored(self) -> list[Cell]:
        """List the cells of features that were there when the column was observed."""
        return [cell for cell in self.cells if cell.reason != _NEWER]

    def explained(self) -> list[Cell]:
        """List the cells that have a scenario to show."""
        return [cell for cell in self.cells if cell.word in EXPLAINED]

    def write(self) -> None:
        """Write the observations, a line for each feature."""
        data = {**asdict(self), "cells": None}
        del data["column"], data["cells"]
        head = json.dumps(data, indent=1).removesuffix("\n}")
        rows = ",\n".join(
            json.dumps({key: value for key, value in asdict(cell).items() if value})
            for cell in self.stored()
        )
        RESULTS.mkdir(parents=True, exist_ok=True)
        self.column.file.write_text(f'{head},\n "cells": [\n{rows}\n]}}\n')


def _not_tried(feature: str) -> Cell:
    return Cell(feature, "not tried", reason=_NEWER)


def observed_columns() -> Iterator[Observed]:
    """Yield the stored observations, in the order of the columns."""
    for column in COLUMNS:
        if column.file.exists():
            data: dict[str, Any] = json.loads(column.file.read_text())
            stored = {cell["feature"]: Cell(**cell) for cell in data.pop("cells")}
            cells = tuple(
                stored.get(name, _not_tried(name)) for name in map(str, OPTIONAL)
            )
            yield Observed(column=column, cells=cells, **data)
