"""The profiler of FSDP1, whose class names the phases that run.

The only module that touches `torch.distributed.fsdp._debug_utils`; a test says that each rank
names its own phases.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Iterator
from typing import Any, Final

from syncverify.sim.per_rank.change import ProcessPart, Value

_MODULE: Final = "torch.distributed.fsdp._debug_utils"


def fsdp_profiler() -> Iterator[ProcessPart]:
    """Yield the phases, if the process has imported FSDP1."""
    profiler: Any = getattr(sys.modules.get(_MODULE), "SimpleProfiler", None)
    if profiler is not None:
        phases: set[str] = profiler.profiling
        fill = functools.partial(_fill, phases)
        yield Value(lambda: frozenset(phases), fill, operator.eq)


def _fill(phases: set[str], named: frozenset[str]) -> None:
    phases.clear()
    phases.update(named)
