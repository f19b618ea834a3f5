"""Parts that are commands of their own: the tests for NCCL, and searches under torchrun."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import torch

from studies.gpu.part import Part, Result, environment, transport_of

ROOT = Path(__file__).parents[2]
SUBJECTS = ("synchronizer", "ddp")
EXAMPLES = 150


def run_tests(device: torch.device, folder: str = "tests") -> Result:
    """Run the tests that need GPUs, and count those that were skipped."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        done = _finished(
            "pytest", "-m", "nccl", "-p", "no:cacheprovider", f"--junitxml={report}", folder
        )  # fmt: skip
        if not report.is_file():
            return Result("failed", device.type, "pytest ended early", _quoted(done))
        suites = list(ElementTree.parse(report).getroot())
    counts = {
        name: sum(int(suite.get(name, 0)) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    wrong = counts["failures"] + counts["errors"]
    passed = counts["tests"] - wrong - counts["skipped"]
    summary = f"{passed} passed, {wrong} failed, {counts['skipped']} skipped"
    if wrong:
        return Result("failed", device.type, summary, _quoted(done))
    return Result("passed" if passed else "not run", device.type, summary)


def run_searches(
    device: torch.device, subjects: Sequence[str] = SUBJECTS, examples: int = EXAMPLES
) -> Result:
    """Search on one rank under torchrun."""
    backend = transport_of(device)
    lines: list[str] = []
    is_right = True
    for subject in subjects:
        done = _finished(
            "torch.distributed.run", "--standalone", "--nproc-per-node=1",
            "-m", "syncverify", "run", subject, "--backend", backend,
            "--examples", str(examples), "--seed", "0",
        )  # fmt: skip
        is_right = is_right and done.returncode == 0
        verdict = next(
            (line for line in done.stdout.splitlines() if "VIOLATION: " in line), ""
        )
        lines.append(f"- {verdict or f'`{subject}`: no verdict'}")
        if done.returncode:
            lines += _quoted(done)
    summary = f"{examples} scenarios each of {', '.join(subjects)} on {backend}"
    return Result("passed" if is_right else "failed", device.type, summary, lines)


def _finished(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip


def _quoted(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Quote the beginning and the end: the launcher's traceback follows the line that counts."""
    lines = (done.stdout + done.stderr).replace(str(ROOT), ".").splitlines()
    shown = lines if len(lines) <= 14 else [*lines[:7], "...", *lines[-6:]]
    return ["", "```text", *shown, "```"]


TESTS = Part(
    "tests",
    "Tests for NCCL",
    "`pytest -m nccl`. Some of these tests need two GPUs; without a GPU all are skipped.",
    run_tests,
)
SEARCHES = Part(
    "searches",
    "Searches under torchrun",
    "Is there no false alarm on one rank on `nccl`? On a CPU the same search runs on `gloo`.",
    run_searches,
)
