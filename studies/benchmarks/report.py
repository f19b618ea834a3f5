"""The report of one run: as JSON, as a table in a terminal, as a table in a document."""

import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from studies.benchmarks.measure import Measure
from studies.documents import table

NUMBERS = ("median", "middle half", "rounds", "target")
COLUMNS = ("measure", "against", *NUMBERS, "verdict")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the date of a measurement.

    Attributes:
        date: Day of the measurement.
        cores: Number of processors.
        load: Average load before the measurement; 0 on an idle machine.
        cpu: Model of the processor.
        torch: Version of torch.
        python: Version of Python.
    """

    date: str
    cores: int
    load: float
    cpu: str
    torch: str
    python: str

    @classmethod
    def this(cls) -> "Machine":
        """Describe this machine as it is now."""
        return cls(
            date=datetime.now(UTC).date().isoformat(),
            cores=len(os.sched_getaffinity(0)),
            load=round(os.getloadavg()[0], 1),
            cpu=_cpu_name(),
            torch=torch.__version__,
            python=platform.python_version(),
        )

    @property
    def line(self) -> str:
        """Return all fields as one line."""
        return (
            f"{self.date}, {self.cores} cores of {self.cpu}, CPU only,"
            f" torch {self.torch}, Python {self.python}, load {self.load} at the start"
        )


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one run of a benchmark.

    Attributes:
        measures: Measures in the order of the table.
        machine: Machine and date.
        num_rounds: Number of rounds of a measure that takes less than a second.
    """

    measures: tuple[Measure, ...]
    machine: Machine
    num_rounds: int

    def to_json(self) -> dict[str, Any]:
        """Return each value at the path of its key, and the details beside them."""
        document: dict[str, Any] = {}
        for measure in self.measures:
            *outer, last = measure.key
            place = document
            for key in outer:
                place = place.setdefault(key, {})
            place[last] = measure.value
        return document | {
            "measures": [_details(measure) for measure in self.measures],
            "num_rounds": self.num_rounds,
            "machine": asdict(self.machine),
        }

    def table(self) -> Table:
        """Return the table for a terminal."""
        table = Table(title="medians of rounds")
        for column in COLUMNS:
            table.add_column(column, no_wrap=column in NUMBERS)
        for measure in self.measures:
            table.add_row(*_cells(measure))
        return table

    def markdown(self) -> str:
        """Return the table for a document."""
        return "\n".join(
            [
                f"Medians of rounds. {self.machine.line}.",
                "",
                *table(COLUMNS, map(_cells, self.measures)),
            ]
        )


def _details(measure: Measure) -> dict[str, Any]:
    details = asdict(measure)
    return details | {"is_met": measure.is_met, "verdict": measure.verdict}


def _cells(measure: Measure) -> tuple[str, ...]:
    sign = ">=" if measure.at_least else "<="
    target = f"{sign} {measure.target:g} {measure.unit}"
    if measure.value is None or measure.quartiles is None:
        return (measure.label, measure.peer, "-", "-", "0", target, measure.note)
    low, high = measure.quartiles
    value = f"{measure.value:.2f} {measure.unit}"
    spread = f"{low:.2f} to {high:.2f}"
    name, rounds = (measure.label, measure.peer), str(measure.num_rounds)
    return (*name, value, spread, rounds, target, measure.verdict)


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    return names[0].strip() if names else platform.machine()
