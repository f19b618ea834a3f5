"""Files of a release, loaded alone: their packages import kernels that a CPU has not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def file_of(package: str, path: str) -> ModuleType:
    """Load a file of a package without the packages between them.

    Args:
        package: Name of the top-level package.
        path: The file, from the folder of the package.

    Returns:
        The module.
    """
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin).parent / path
    spec = importlib.util.spec_from_file_location(f"_{package}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module
