"""A worker of this machine: Ctrl-C reaches the whole process group, and the command ends workers."""

from __future__ import annotations

import signal
import sys
from typing import Any

from distributed import Nanny
from typing_extensions import override

from syncverify.import_path import PACKAGE_FOLDER, harness_path


class LocalNanny(Nanny):  # type: ignore[misc]  # has no annotations
    """Starts a worker that imports this package: see Note [Every process imports this package].

    The process of a worker gets `sys.path` as it is here when the process starts, and imports
    the module `__main__` of this process before it runs any code of ours.
    """

    @override
    async def instantiate(self) -> Any:
        path = dict.fromkeys([PACKAGE_FOLDER, *harness_path()])
        sys.path[:0] = path
        try:
            return await super().instantiate()
        finally:
            for each in path:  # its first place: other workers may start meanwhile
                sys.path.remove(each)


def dask_setup(_worker: object) -> None:
    """Make a worker that begins ready; `distributed` calls this by its name."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:] = dict.fromkeys(sys.path)
