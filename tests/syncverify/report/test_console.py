"""The console shows texts as they are; a file is replaced as a whole or not at all."""

import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from syncverify.errors import UsageError
from syncverify.report.console import CommandConsole, say, write


def test_texts_are_no_markup_and_no_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "[/b] :smile: \x1b[31m" + "x" * 200
    CommandConsole().print(text)
    say(text)
    shown = r"[/b] :smile: \x1b[31m" + "x" * 200 + "\n"
    assert capsys.readouterr().out == shown + shown


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """Stand in for a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_earlier_report_outlives_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write(path, "earlier")
    with (
        files_of_at_most(100),
        pytest.raises(UsageError, match=r"report\.json': File too large$"),
    ):
        write(path, "x" * 1000)
    assert path.read_text() == "earlier\n"
    assert list(tmp_path.iterdir()) == [path]


def test_report_keeps_the_mode_and_the_link_of_an_earlier_one(tmp_path: Path) -> None:
    path, link = tmp_path / "report.json", tmp_path / "link.json"
    write(path, "earlier")
    path.chmod(0o640)
    link.symlink_to(path)
    write(link, "later \ud800")
    assert path.read_text() == "later \\ud800\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()


def test_device_is_written_and_not_replaced() -> None:
    write(Path("/dev/null"), "text")
    assert Path("/dev/null").is_char_device()
