"""The newest release of a package, asked of the package index.

`pip index versions` hides each release that does not run under pip's own Python. The index
itself lists all files: https://packaging.python.org/en/latest/specifications/simple-repository-api/
"""

import json
import os
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from studies.releases.release_table import Release, ReleaseTable
from studies.rows import today

_INDEX: Final = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_PATIENCE_SECONDS: Final = 60


def asked(names: list[str]) -> ReleaseTable:
    """Ask the index for the newest release of each package.

    Args:
        names: Names of packages.

    Returns:
        The table of today.
    """
    day = today()
    return ReleaseTable(day, {name: newest(name, _page(name), day) for name in names})


def newest(package: str, page: dict[str, Any], asked: str) -> Release:
    """Return the newest release on a page of the index, for any Python.

    Releases that were withdrawn do not count, and a pre-release only where there is no other.
    """
    by_version = defaultdict[Version, list[dict[str, Any]]](list)
    for version, file in _files(page):
        by_version[version].append(file)
    finals = [version for version in by_version if not version.is_prerelease]
    version = max(finals or by_version)
    files = by_version[version]
    return Release(
        package=package,
        version=str(version),
        date=min(file["upload-time"] for file in files)[:10],
        asked=asked,
        python=files[0].get("requires-python") or "",
    )


def _files(page: dict[str, Any]) -> Iterator[tuple[Version, dict[str, Any]]]:
    """Yield the version and the entry of each file that was not withdrawn."""
    for file in page["files"]:
        version = _version(file["filename"])
        if version is not None and not file.get("yanked"):
            yield version, file


def _version(filename: str) -> Version | None:
    """Return the version that a file holds; None for an installer of another kind."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidSdistFilename, InvalidWheelFilename):
        return None


def _page(name: str) -> dict[str, Any]:
    address = f"{_INDEX.rstrip('/')}/{canonicalize_name(name)}/"
    request = urllib.request.Request(address, headers={"Accept": _JSON})
    with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
        content: dict[str, Any] = json.load(answer)
    return content
