"""The connection with a cluster: a scheduler that runs, or one that is started here."""

from __future__ import annotations

import json
import logging
import os
import platform
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.processes.system import interrupts_blocked

if TYPE_CHECKING:
    from distributed import Client

_PACKAGES = ("syncverify", "torch")
# By name, of Python and of `_PACKAGES`; "" for a package that is not there.
Versions = dict[str, str]
_REACH_SECONDS: Final = 10
_LOCAL = re.compile(r"local(?::([1-9][0-9]{0,2}))?")
_ADDRESS = re.compile(r"[a-z]+://.+")


@contextmanager
def connected(place: str) -> Iterator[Client]:
    """Yield a client: of `local`, `local:N`, the address of a scheduler, or a scheduler's file.

    Raises:
        UsageError: There is no such cluster, or the versions of a worker differ.
        EnvironmentNotSupportedError: The package `distributed` is not installed.
    """
    try:
        import distributed
    except ImportError as error:
        raise EnvironmentNotSupportedError(
            "a cluster needs the package distributed: pip install 'syncverify[cluster]'"
        ) from error
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        local = _LOCAL.fullmatch(place)
        how: dict[str, Any] = {"address": place}
        if local:
            number = int(local[1] or os.cpu_count() or 1)
            how["address"] = cluster = _started_here(distributed, number)
            stack.callback(cluster.close)
        elif not _ADDRESS.fullmatch(place):
            how = {"scheduler_file": _checked(Path(place))}
        client = _client(distributed, place, **how)
        stack.callback(client.close)
        _check_versions(client)
        yield client


def _started_here(distributed: Any, num_workers: int) -> Any:
    """Start a scheduler and workers that end with this process, and that Ctrl-C passes by."""
    # It imports `distributed`.
    from syncverify.search.cluster.local_worker import LocalNanny

    try:
        with interrupts_blocked():
            return distributed.LocalCluster(
                n_workers=num_workers,
                threads_per_worker=1,
                worker_class=LocalNanny,
                # Any port: several campaigns run side by side.
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                memory_limit=0,  # that of a subject is the machine's
                silence_logs=logging.CRITICAL,
                preload=["syncverify.search.cluster.local_worker"],
            )
    except RuntimeError as error:
        raise UsageError(
            f"cannot start workers on this machine: {error.__cause__ or error}; a script that "
            'verifies needs `if __name__ == "__main__":`'
        ) from error


def _client(distributed: Any, place: str, **how: Any) -> Client:
    try:
        client: Client = distributed.Client(
            **how, timeout=_REACH_SECONDS, set_as_default=False
        )
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(
            f"cannot reach a scheduler at {place!r}: {error}; start one with `dask scheduler`"
        ) from error
    return client


def _checked(file: Path) -> str:
    """Return the path of a scheduler's file.

    Raises:
        UsageError: It is none.
    """
    try:
        if "address" in json.loads(file.read_text(encoding="utf-8")):
            return str(file)
    except (OSError, ValueError, TypeError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is no JSON"
    else:
        words = "it names no address"
    raise UsageError(
        f"expected a cluster as local[:N], tcp://HOST:PORT, or the file of "
        f"`dask scheduler --scheduler-file`, not {str(file)!r}: {words}"
    )


def _check_versions(client: Client) -> None:
    """Compare the versions of the workers that are there; each call compares them again.

    Raises:
        UsageError: A worker has another version.
    """
    wanted = versions_here()
    for address, found in sorted(_versions_there(client).items()):
        words = difference(wanted, found)
        if words:
            raise UsageError(f"the worker {address} has {words}")


def _versions_there(client: Client) -> dict[str, Versions]:
    # Functions of Python itself, which a worker without syncverify has as well.
    found: dict[str, Versions] = {
        address: {"python": text}
        for address, text in client.run(platform.python_version).items()
    }
    for package in _PACKAGES:
        texts = client.run(version, package, on_error="return")
        for address, text in texts.items():
            is_there = address in found and isinstance(text, str)
            found.setdefault(address, {})[package] = text if is_there else ""
    return {address: each for address, each in found.items() if "python" in each}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the log of `distributed` from the output: a lost worker is no news to a user."""
    # Each logger of `distributed` has a level of its own once the package is imported.
    names = [*logging.root.manager.loggerDict]
    loggers = [logging.getLogger(n) for n in names if n.startswith("distributed")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


def versions_here() -> Versions:
    """Return the versions of this process."""
    return {"python": platform.python_version()} | {
        package: _version(package) for package in _PACKAGES
    }


def difference(wanted: Versions, found: Versions) -> str:
    """Say which versions are others than wanted; "" if none."""
    return " and ".join(
        f"{name} {found[name] or 'not at all'} (expected {wanted[name]})"
        for name in wanted
        if found[name] != wanted[name]
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
