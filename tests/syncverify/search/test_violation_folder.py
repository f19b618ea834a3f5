"""Saved violations in a folder, where foreign files block no run, and on a server of Redis."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import fakeredis
import pytest
from hypothesis.database import DirectoryBasedExampleDatabase

from syncverify.errors import UsageError
from syncverify.scenario import bounds
from syncverify.search.violation_database import ViolationFolder, open_database

KEY = b"key"


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_long_file(path: Path) -> None:
    path.write_bytes(b"x" * (bounds.MAX_TOKEN_BYTES + 1))


def make_endless_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "make", [make_pipe, make_long_file, make_endless_link, Path.mkdir]
)
def test_foreign_entry_is_set_aside_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("kept")
    DirectoryBasedExampleDatabase(folder).save(KEY, b"good")
    (good,) = (each for each in folder.glob("*/*") if each.read_bytes() == b"good")
    make(good.parent / "bad")
    notes = list[str]()
    assert list(ViolationFolder(folder, notes).fetch(KEY)) == [b"good"]
    (note,) = notes
    assert note.startswith(
        f"saved violation {str(good.parent / 'bad')!r} cannot be read"
    )
    assert note.endswith("and is set aside in 'kept/set-aside'")
    assert [each.name for each in (folder / "set-aside").iterdir()] == ["bad"]
    assert list(ViolationFolder(folder, notes).fetch(KEY)) == [b"good"]
    assert len(notes) == 1


def test_foreign_entry_that_cannot_be_moved_is_skipped(tmp_path: Path) -> None:
    DirectoryBasedExampleDatabase(tmp_path).save(KEY, b"good")
    (good,) = (each for each in tmp_path.glob("*/*") if each.read_bytes() == b"good")
    make_pipe(good.parent / "bad")
    (tmp_path / "set-aside").write_text("a file in the place of the folder")
    notes = list[str]()
    assert list(ViolationFolder(tmp_path, notes).fetch(KEY)) == [b"good"]
    assert notes[0].endswith("(it is no file) and is skipped: remove it")


def test_hypothesis_reads_the_same_folder(tmp_path: Path) -> None:
    ViolationFolder(tmp_path, []).save(KEY, b"entry")
    assert list(DirectoryBasedExampleDatabase(tmp_path).fetch(KEY)) == [b"entry"]
    assert list(ViolationFolder(tmp_path, []).fetch(b"other key")) == []


def test_a_folder_that_cannot_be_made_is_refused_before_it_is_used() -> None:
    message = (
        "cannot make the folder '/proc/no/such' of the database: '/proc' takes no new folder "
        "(No such file or directory); name another one"
    )
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        ViolationFolder("/proc/no/such", [])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\0b", "^cannot use the database .*null (byte|character)"),
        ("file/inside", "^cannot use the database 'file/inside': .*Not a directory"),
        ("file", "^the database 'file' is no folder$"),
    ],
)
def test_path_that_can_be_no_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(UsageError, match=message):
        ViolationFolder(name, [])


@pytest.fixture
def address() -> Iterator[str]:
    """Yield the address of a server."""
    server = fakeredis.TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"redis://:secret@127.0.0.1:{server.server_address[1]}/0"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_one_machine_reads_the_entries_of_another(address: str) -> None:
    one, other = open_database(address, []), open_database(address, [])
    one.save(KEY, b"sv2-b")
    one.save(KEY, b"sv2-a")
    assert [*other.fetch(KEY)] == [b"sv2-a", b"sv2-b"]
    other.delete(KEY, b"sv2-a")
    assert [*one.fetch(KEY)] == [b"sv2-b"]


@pytest.mark.slow
def test_a_server_that_is_not_there_is_one_line_without_its_password() -> None:
    with pytest.raises(UsageError, match="cannot reach the database at") as caught:
        open_database("redis://:secret@127.0.0.1:1/0", [])
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
