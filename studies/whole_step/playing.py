"""Plays of one example, in another process."""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from syncverify import parity
from syncverify.whole_step.parity import Parity


def played(file: Path) -> dict[str, Any]:
    """Play an example in another process, and return its result.

    Args:
        file: The example.

    Returns:
        The fields of a row: names of layouts, the numbers of right layouts and of values, the
        largest difference, and CPU seconds; or the missing package.
    """
    command = [sys.executable, "-W", "ignore", "-m", "studies.whole_step.playing"]
    done = subprocess.run(
        [*command, str(file)], stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compared(module: ModuleType) -> Parity:
    """Compare the training that a module describes with one rank."""
    names = inspect.signature(parity).parameters
    return parity(**{k: value for k, value in vars(module).items() if k in names})


def loaded(file: Path) -> ModuleType:
    """Import a file.

    Returns:
        Its module.

    Raises:
        ImportError: It is no Python file, or needs a package that is missing.
    """
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _result(file: Path) -> dict[str, Any]:
    try:
        module = loaded(file)
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    start = time.process_time()
    result = compared(module)
    return {
        "layouts": [str(each.layout) for each in result.plays],
        "right": sum(each.is_right for each in result.plays),
        "values": sum(each.num_values for each in result.plays),
        "worst": max(each.worst_error for each in result.plays),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


if __name__ == "__main__":
    print(json.dumps(_result(Path(sys.argv[1]))))  # noqa: T201  # for the process above
