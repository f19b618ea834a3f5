"""Columns of the conformance table: synchronizers, and what was observed of each."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from packaging.version import Version

from studies.rows import RESULTS, RowFile
from syncverify.scenario.feature_table import OPTIONAL

PLAIN: Final = "plain steps"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The observation of some features of one synchronizer, each alone, with one result.

    Attributes:
        column: Name of the column.
        features: Features of one topic, as `topic=value`; `PLAIN` for a violation without any.
        word: The worst word of a scenario.
        version: Version of the package.
        torch: Version of torch.
        python: Version of Python, as "3.12".
        date: Day of the observation.
        right: Number of scenarios with this word, as the following four.
        refused: Number of scenarios.
        wrong: Number of scenarios.
        hangs: Number of scenarios.
        unclear: Number of scenarios.
        token: Token of the simplest scenario that is neither right nor refused.
    """

    column: str
    features: tuple[str, ...]
    word: str
    version: str
    torch: str
    python: str
    date: str
    right: int = 0
    refused: int = 0
    wrong: int = 0
    hangs: int = 0
    unclear: int = 0
    token: str = ""

    @property
    def num_scenarios(self) -> int:
        """Number of scenarios that were played of each feature."""
        return self.right + self.refused + self.wrong + self.hangs + self.unclear


CELLS: Final = RowFile(RESULTS / "conformance.jsonl", Cell, ("column", "features"))


@dataclass(frozen=True, slots=True)
class Observed:
    """The observations of one column, all with the same releases.

    Attributes:
        column: The column.
        stored: Its cells.
    """

    column: Column
    stored: tuple[Cell, ...]

    @property
    def releases(self) -> tuple[str, str]:
        """The versions of the package and of torch."""
        return self.stored[0].version, self.stored[0].torch

    @property
    def cells(self) -> dict[str, Cell]:
        """The cells of the features of today, by feature."""
        known = {name: cell for cell in self.stored for name in cell.features}
        return {name: known[name] for name in map(str, OPTIONAL) if name in known}

    def lacks_a_feature(self) -> bool:
        """Tell whether a feature is newer than the column."""
        return len(self.cells) < len(OPTIONAL)

    def is_outdated(self) -> bool:
        """Tell whether this Python has a newer release of the package, or of torch."""
        installed = self.column.installed()
        if installed is None:
            return False
        here = map(Version, (installed, installed_torch()))
        return any(
            a < b for a, b in zip(map(Version, self.releases), here, strict=True)
        )

    def is_of_these_releases(self) -> bool:
        """Tell whether this Python has the releases that were observed."""
        return self.releases == (self.column.installed(), installed_torch())

    def explained(self) -> list[Cell]:
        """List the cells that have a scenario to show."""
        return [each for each in self.stored if each.token]


def observed_columns() -> Iterator[Observed]:
    """Yield the stored observations, in the order of the columns."""
    stored = CELLS.read()
    for column in COLUMNS:
        cells = tuple(cell for cell in stored if cell.column == column.name)
        if cells:
            yield Observed(column, cells)


def keep(column: Column, cells: Iterable[Cell]) -> None:
    """Store the cells of a column in the place of all that are stored of it."""
    others = (cell for cell in CELLS.read() if cell.column != column.name)
    CELLS.write([*others, *_joined(cells)])


def _joined(cells: Iterable[Cell]) -> Iterator[Cell]:
    """Yield a cell for all features of a topic with the same result."""
    features = defaultdict[Cell, set[str]](set)
    for cell in cells:
        for name in cell.features:
            features[replace(cell, features=(name.partition("=")[0],))].add(name)
    for cell, names in features.items():
        yield replace(cell, features=tuple(sorted(names)))
