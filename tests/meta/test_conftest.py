"""The process of pytest-xdist that hands out the tests starts without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IS_IMPORTED = "import sys, tests.conftest; print('torch' in sys.modules)"


@pytest.mark.long
def test_what_each_process_of_the_tests_reads_imports_no_torch() -> None:
    """It is 3 s of CPU time, and as long until the first test starts."""
    read = subprocess.run(
        [sys.executable, "-c", IS_IMPORTED],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert read.stdout == "False\n"
