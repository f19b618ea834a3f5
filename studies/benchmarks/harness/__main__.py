"""The command line: `python -m studies.benchmarks.harness`; exit codes as in `command.py`."""

from collections.abc import Callable
from typing import NoReturn

import torch

from studies.benchmarks.command import measure_parts, run_benchmark
from studies.benchmarks.harness.measures import (
    SMOKE,
    Sizes,
    measure_drawn,
    measure_large,
    measure_spawned,
    measure_threaded,
    measure_warm,
)
from studies.benchmarks.harness.players import BrokenRunError
from studies.benchmarks.measure import Measure
from studies.benchmarks.report import Machine, Report
from syncverify.errors import SyncverifyError
from syncverify.late_imports import import_dynamo

PARTS: dict[str, Callable[[Sizes], list[Measure]]] = {
    "sim beside threads": measure_threaded,
    "sim beside spawned gloo": measure_spawned,
    "sim beside warm gloo": measure_warm,
    "drawn scenarios": measure_drawn,
    "large worlds": measure_large,
}


def measure_all(rounds: int | None) -> Report:
    """Run every part, with tiny sizes where no number of rounds is given."""
    # As in the command line of the harness, and in the workers of gloo: one thread, and all
    # modules are imported before anything is measured.
    torch.set_num_threads(1)
    import_dynamo()
    machine = Machine.this()  # before the load is our own
    sizes = SMOKE if rounds is None else Sizes(rounds)
    return Report(measure_parts(PARTS, sizes), machine, sizes.rounds)


def main() -> NoReturn:
    """Measure the harness beside threads and processes that play the same scenarios."""
    run_benchmark(
        "studies.benchmarks.harness",
        measure_all,
        rounds=(10, 20),
        failures=(BrokenRunError, RuntimeError, SyncverifyError),
    )


if __name__ == "__main__":
    main()
