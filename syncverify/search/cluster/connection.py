"""The connection with a cluster, whose scheduler runs."""

from __future__ import annotations

import json
import logging
import platform
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from syncverify.errors import EnvironmentNotSupportedError, UsageError

if TYPE_CHECKING:
    from distributed import Client

_PACKAGES = ("syncverify", "torch")
# By name, of Python and of `_PACKAGES`; "" for a package that is not there.
Versions = dict[str, str]
_REACH_SECONDS: Final = 10
_ADDRESS = re.compile(r"[a-z]+://.+")


@contextmanager
def connected(place: str) -> Iterator[Client]:
    """Yield a client of a scheduler, by its address or its file.

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
    with _quiet(), closing(_client(distributed, place)) as client:
        # Of workers that are there; each call compares them again.
        for address, found in sorted(_versions_there(client).items()):
            if words := difference(versions_here(), found):
                raise UsageError(f"the worker {address} has {words}")
        yield client


def _client(distributed: Any, place: str) -> Client:
    how: dict[str, Any] = {"timeout": _REACH_SECONDS, "set_as_default": False}
    if _ADDRESS.fullmatch(place):
        how["address"] = place
    else:
        how["scheduler_file"] = _checked(Path(place))
    try:
        client: Client = distributed.Client(**how)
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(
            f"cannot reach a scheduler at {place!r}: {error}; start one with `dask scheduler`"
        ) from error
    return client


def _checked(file: Path) -> str:
    """Return the path of a scheduler's file; refuse another one."""
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
    of_packages = {package: _version(package) for package in _PACKAGES}
    return {"python": platform.python_version(), **of_packages}


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
