"""Runs an example as its user would."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def examples() -> Path:
    """Where the examples are."""
    return EXAMPLES


@pytest.fixture
def torchrun() -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs a script with arguments on a number of ranks."""

    def run(
        script: Path, *arguments: str, num_ranks: int
    ) -> subprocess.CompletedProcess[str]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        return subprocess.run(
            [*launcher, f"--nproc-per-node={num_ranks}", str(script), *arguments],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    return run
