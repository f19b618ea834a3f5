"""Where violations are saved: a folder, a server that machines share, or nowhere.

Both are Hypothesis databases, so artifacts of other machines and combinations of databases work.
The folder may come from another machine, such as an artifact of CI: foreign files in it are set
aside and block no run. Hypothesis has no public method for the place of a key in the folder, so
this module uses a private one. The package `redis` is an extra, and is imported when a user names a
server.
"""

import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    ExampleDatabase,
    InMemoryExampleDatabase,
)
from typing_extensions import override

from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.scenario import bounds
from syncverify.search.whole_file import make_ignored_folder

# A folder, the address of a server, or a Hypothesis database; None saves nothing.
Database = ExampleDatabase | Path | str | None

_ADDRESS: Final = re.compile(r"(rediss?|unix)://.+")
_REACH_SECONDS: Final = 10


def open_database(database: Database, notes: list[str]) -> ExampleDatabase:
    """Return the database that a user named; the first save creates its folder.

    `notes` receives a line about each file that is not read.

    Raises:
        UsageError: The path is no folder, and none can be made there; or no server is there.
    """
    if database is None:
        return InMemoryExampleDatabase()
    if isinstance(database, ExampleDatabase):
        return database
    if is_server(database):
        return ViolationServer(str(database))
    return ViolationFolder(database, notes)


def is_server(text: object) -> bool:
    """Tell whether a user means a server and no folder."""
    return isinstance(text, str) and _ADDRESS.fullmatch(text) is not None


class ViolationFolder(DirectoryBasedExampleDatabase):
    """A Hypothesis database in a folder, which reads regular files of bounded size alone."""

    def __init__(self, path: Path | str, notes: list[str]) -> None:
        super().__init__(path)
        self._notes = notes
        try:
            if not stat.S_ISDIR(self.path.stat().st_mode):
                raise UsageError(f"the database {str(path)!r} is no folder")
        except FileNotFoundError:
            _check_new_folder(self.path)
        except (OSError, ValueError) as error:  # too long, or a null byte
            raise UsageError(
                f"cannot use the database {str(path)!r}: {error}"
            ) from error

    @override
    def save(self, key: bytes, value: bytes) -> None:
        """Save an entry; the first one makes the folder, with a file that makes git ignore it."""
        make_ignored_folder(self.path)
        super().save(key, value)

    @override
    def fetch(self, key: bytes) -> Iterable[bytes]:
        """Yield the content of each file of a key, by the order of names."""
        folder = self._key_path(key)
        try:
            files = sorted(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._notes.append(
                f"saved violations in {str(folder)!r} are skipped: {error}"
            )
            return
        for file in files:
            try:
                yield _read(file)
            except OSError as error:
                self._set_aside(file, error.strerror or str(error))

    def _set_aside(self, file: Path, reason: str) -> None:
        """Move a file where no run reads it, so that it is in the way once."""
        target = self.path / "set-aside"
        line = f"saved violation {str(file)!r} cannot be read ({reason})"
        try:
            target.mkdir(exist_ok=True)
            file.rename(target / file.name)
        except OSError:
            self._notes.append(f"{line} and is skipped: remove it")
        else:
            self._notes.append(f"{line} and is set aside in {str(target)!r}")


def _check_new_folder(path: Path) -> None:
    """Raise UsageError where a folder cannot be made, by another one that is deleted at once."""
    parent = next(each for each in path.absolute().parents if each.exists())
    try:
        Path(tempfile.mkdtemp(prefix=".syncverify-", dir=parent)).rmdir()
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {str(path)!r} of the database: {str(parent)!r} takes no "
            f"new folder ({error.strerror}); name another one"
        ) from error


def _read(file: Path) -> bytes:
    def opener(path: str, flags: int) -> int:
        # A pipe without a writer would keep a plain `open` for ever.
        return os.open(path, flags | os.O_NONBLOCK)

    with open(file, "rb", opener=opener) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError("it is no file")
        content = opened.read(bounds.MAX_TOKEN_BYTES + 1)
    if len(content) > bounds.MAX_TOKEN_BYTES:
        raise OSError("it is too long for a token")
    return content


class ViolationServer(ExampleDatabase):
    """A Hypothesis database on a server, such as `redis://HOST:6379/0`.

    The loss of the server is a clear error.
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
        with self._reached():
            self._entries.save(key, value)

    @override
    def fetch(self, key: bytes) -> Iterable[bytes]:
        """Return the entries of a key, by their order."""
        with self._reached():
            return sorted(self._entries.fetch(key))

    @override
    def delete(self, key: bytes, value: bytes) -> None:
        with self._reached():
            self._entries.delete(key, value)
