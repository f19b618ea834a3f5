"""Violations on a server of Redis, which machines share."""

import threading
from collections.abc import Iterator

import fakeredis
import pytest

from syncverify.errors import UsageError
from syncverify.search.saved_violations import open_database

KEY = b"syncverify ddp sim"


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
