"""A database of violations on a server of Redis, which machines share.

The package `redis` is an extra, and is imported when a user names a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from hypothesis.database import ExampleDatabase
from typing_extensions import override

from syncverify.errors import EnvironmentNotSupportedError, UsageError

_ADDRESS: Final = re.compile(r"(rediss?|unix)://.+")
_REACH_SECONDS: Final = 10


def is_server(text: object) -> bool:
    """Tell whether a user means a server and no folder."""
    return isinstance(text, str) and _ADDRESS.fullmatch(text) is not None


class ViolationServer(ExampleDatabase):
    """A Hypothesis database on a server, whose loss is a clear error.

    Args:
        address: Such as `redis://HOST:6379/0`.

    Raises:
        UsageError: The server cannot be reached.
        EnvironmentNotSupportedError: The package `redis` is not installed.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        try:
            from hypothesis.extra.redis import RedisExampleDatabase
            from redis import Redis
        except ImportError as error:
            raise EnvironmentNotSupportedError(
                "a database on a server needs the package redis: pip install "
                "'syncverify[cluster]'"
            ) from error
        self._name = re.sub(r"//.*@", "//", address)  # without a password
        with self._reached():
            server = Redis.from_url(address, socket_connect_timeout=_REACH_SECONDS)
            server.ping()
            self._entries = RedisExampleDatabase(server)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        from redis import RedisError

        try:
            yield
        except (RedisError, ValueError, OSError) as error:
            raise UsageError(
                f"cannot reach the database at {self._name!r}: {error}; once it is there, the "
                "same command goes on"
            ) from error

    @override
    def save(self, key: bytes, value: bytes) -> None:
        """Save an entry."""
        with self._reached():
            self._entries.save(key, value)

    @override
    def fetch(self, key: bytes) -> Iterable[bytes]:
        """Return the entries of a key, by their order."""
        with self._reached():
            return sorted(self._entries.fetch(key))

    @override
    def delete(self, key: bytes, value: bytes) -> None:
        """Delete an entry."""
        with self._reached():
            self._entries.delete(key, value)
