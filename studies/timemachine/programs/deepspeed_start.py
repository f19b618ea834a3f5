"""DeepSpeed's communication on ranks that are threads: its one backend serves them all."""

from __future__ import annotations

import os

import studies.timemachine.programs.deepspeed_names  # noqa: F401, before DeepSpeed

# isort: split
os.environ["DS_ACCELERATOR"] = "cpu"  # DeepSpeed looks for hardware on import

import deepspeed
import deepspeed.comm


def start() -> None:
    """Make the backend that passes collectives on to torch."""
    # Without it DeepSpeed compiles collectives for ranks of one machine.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.comm.init_distributed(dist_backend="gloo", verbose=False)
