"""The error of a built-in subject whose package, or a part that it needs, is missing."""

import re
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

_DISTRIBUTION: Final = "syncverify"
_OF_PEERS: Final = re.compile(r"([\w.-]+).*; *extra *== *['\"]peers['\"]")


def missing_package(
    package: str, error: ModuleNotFoundError, *, options: str = "--no-deps "
) -> ModuleNotFoundError:
    """Return an error that names what is missing, and how to install it.

    Only for a package of the extra `peers` the error has a command that installs it. Other
    packages may be on no index, or the index may have another package of that name.

    The missing module may be one that the package imports. The requirements of the package itself
    may change torch, so the options of pip leave them out.
    """
    missing = (error.name or package).partition(".")[0].replace("_", "-")
    is_known = package in packages_of_peers()
    if package.startswith(missing):
        how = f"; install it by `pip install {options}{package}`" if is_known else ""
        return ModuleNotFoundError(f"{package} is missing{how}")
    how = f"; install that by `pip install {missing}`" if is_known else ""
    return ModuleNotFoundError(
        f"{package} cannot be imported, since it needs {missing}, which is missing{how}"
    )


def packages_of_peers() -> set[str]:
    """Return the packages of the extra `peers`, which are on the package index."""
    try:
        required = requires(_DISTRIBUTION) or ()
    except PackageNotFoundError:  # a checkout that is not installed
        return set()
    return {found[1] for each in required if (found := _OF_PEERS.match(each))}
