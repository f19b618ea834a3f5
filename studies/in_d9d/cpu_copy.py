"""A copy of the installed d9d that works on a CPU.

d9d names the device of its tensors and meshes by the literal "cuda". In the copy the literal is
"cpu" in each file; no other line differs. Streams, events and the current device come from
`torch.cuda` by name, and `stand_ins.idle_streams` stands in for them.
"""

import importlib.metadata
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from studies.stand_ins import idle_streams

_LITERALS = {'"cuda"': '"cpu"', "'cuda'": "'cpu'", 'f"cuda:{': 'f"cpu:{'}


def make_copy(folder: Path) -> dict[str, int]:
    """Write the copy into a folder.

    Returns:
        The number of lines that differ, by file.

    Raises:
        importlib.metadata.PackageNotFoundError: d9d is not installed.
    """
    distribution = importlib.metadata.distribution("d9d")
    source = Path(str(distribution.locate_file("d9d")))
    shutil.copytree(source, folder / "d9d", ignore=shutil.ignore_patterns("*.pyc"))
    changed = {
        str(path.relative_to(folder)): rewrite(path)
        for path in sorted((folder / "d9d").rglob("*.py"))
    }
    return {name: lines for name, lines in changed.items() if lines}


def rewrite(path: Path) -> int:
    """Replace the literal in a file, and return the number of lines that differ."""
    before = path.read_text()
    after = before
    for literal, other in _LITERALS.items():
        after = after.replace(literal, other)
    path.write_text(after)
    lines = zip(before.splitlines(), after.splitlines(), strict=True)
    return sum(old != new for old, new in lines)


def install(folder: Path) -> None:
    """Let this process import the copy, and play the calls of `torch.cuda` on a CPU."""
    sys.path.insert(0, str(folder))
    idle_streams.install()
    cuda: Any = torch.cuda
    cuda.current_device = lambda: 0
    cuda.device_count = lambda: 1
    cuda.set_device = cuda.empty_cache = lambda *_: None
