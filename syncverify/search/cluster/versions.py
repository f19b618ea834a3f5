"""Versions of Python, torch and syncverify, on this machine and on workers."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("syncverify", "torch")
# By name, of Python and of `PACKAGES`; "" for a package that is not there.
Versions = dict[str, str]


def versions_here() -> Versions:
    """Return the versions of this process."""
    return {"python": platform.python_version()} | {
        package: _version(package) for package in PACKAGES
    }


def difference(wanted: Versions) -> str:
    """Say which versions of this process are others; "" if none."""
    return in_words(wanted, versions_here())


def in_words(wanted: Versions, found: Versions) -> str:
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
