"""What starts often, or in the processes of others, imports nothing that is heavy."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = "syncverify.command.hypothesis_plugin"
OURS = {"syncverify.strategies", "syncverify.synchronizer"}
# First import, the module that it brings, and modules that it must not bring.
IMPORTS = [
    # The process of pytest-xdist that hands out the tests: 3 s until the first one starts.
    ("tests.conftest", "tests.conftest", {"torch"}),
    ("syncverify", "syncverify", {"torch", "hypothesis", *OURS}),
    ("hypothesis", PLUGIN, {"torch", *OURS}),
    ("syncverify.strategies", PLUGIN, set()),
    (
        "syncverify.pytest_plugin",
        "syncverify.scenario.settings",
        {"torch", "hypothesis", "click", "rich", "numpy", "syncverify.command", *OURS},
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("first", "brings", "heavy"), IMPORTS)
def test_an_import_stays_light(first: str, brings: str, heavy: set[str]) -> None:
    script = f"import {first}; import sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert brings in loaded
    assert heavy & {*loaded} == set()
