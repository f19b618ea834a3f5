"""The command line: `python -m studies.benchmarks.synchronizer`; exit codes as in `command.py`."""

from collections.abc import Callable
from typing import NoReturn

from studies.benchmarks.command import measure_parts, run_benchmark
from studies.benchmarks.measure import Measure
from studies.benchmarks.report import Machine, Report
from studies.benchmarks.rounds import Rounds
from studies.benchmarks.synchronizer.d9d_steps import measure_d9d
from studies.benchmarks.synchronizer.links import measure_links
from studies.benchmarks.synchronizer.mesh import measure_mesh
from studies.benchmarks.synchronizer.sizes import FULL, SMOKE, Sizes
from studies.benchmarks.synchronizer.steps import measure_steps
from syncverify.errors import InternalError

SMOKE_ROUNDS = Rounds(count=2, warm_up=3)
PARTS: dict[str, Callable[[Sizes, Rounds], list[Measure]]] = {
    "steps beside DDP": measure_steps,
    "steps beside d9d": measure_d9d,
    "sums over a mesh": measure_mesh,
    "simulated links": measure_links,
}


def measure_all(rounds: int | None) -> Report:
    """Run every part, with tiny sizes where no number of rounds is given."""
    sizes, chosen = (SMOKE, SMOKE_ROUNDS) if rounds is None else (FULL, Rounds(rounds))
    machine = Machine.this()  # before the load is our own
    measures = measure_parts(PARTS, sizes, chosen)
    return Report(measures, machine, chosen.count)


def main() -> NoReturn:
    """Measure the gradient synchronizer beside DDP, d9d and plain all-reduce."""
    run_benchmark(
        "studies.benchmarks.synchronizer",
        measure_all,
        rounds=(20, 30),
        failures=(InternalError,),
    )


if __name__ == "__main__":
    main()
