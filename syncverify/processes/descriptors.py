"""The number of files and sockets that a process may open."""

from __future__ import annotations

import resource

from syncverify.errors import EnvironmentNotSupportedError

# A rank that meets the limit hangs or raises, and that would look like the subject's fault.
_NUM_NEEDED = 256


def require_descriptors() -> None:
    """Raise the limit of this process, which its children inherit, as far as needed.

    Raises:
        EnvironmentNotSupportedError: The system allows fewer.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _NUM_NEEDED:
        return
    if hard != resource.RLIM_INFINITY and hard < _NUM_NEEDED:
        raise EnvironmentNotSupportedError(
            f"expected a limit of {_NUM_NEEDED} open files or more, which ranks with sockets "
            f"need, got {hard}; raise it by `ulimit -n 1024`, or play on sim"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (_NUM_NEEDED, hard))
