"""Source lines: those of the rank in a dump of threads, and files that are no subject's."""

import importlib.util
import threading
from pathlib import Path

import pytest
import torch

from syncverify.playing import workers
from syncverify.processes import thread_signal
from syncverify.trace.source_files import (
    helpers_of_torch,
    is_subject_line,
    is_torch_line,
)
from syncverify.trace.stacks import frames_in_dump

WAITS = f"""\
Thread 0x00007f10 (most recent call first):
  File "{threading.__file__}", line 327 in wait
  File "/home/me/mine.py", line 3 in poll

Thread 0x00007f15 (most recent call first):
  File "{thread_signal.__file__}", line 35 in take
  File "/home/me/mine.py", line 4 in wait
"""
HELPS = """\
Thread 0x00007f20 (most recent call first):
  File "/home/me/mine.py", line 5 in help
"""
RANK = f"""\
Thread 0x00007f30 (most recent call first):
  File "/home/me/d\\xe9j\\xe0.py", line 8 in wait
  File "{workers.__file__}", line 90 in _play_and_send
  File "{threading.__file__}", line 1 in run
"""
HARNESS = f"""\
Current thread 0x00007f40 (most recent call first):
  File "{workers.__file__}", line 70 in serve
"""


def test_lines_of_a_dump_are_those_of_the_rank_and_not_of_a_thread_that_waits() -> None:
    dump = "\n".join([WAITS, HELPS, RANK, HARNESS])
    assert [*map(str, frames_in_dump(dump))] == ["/home/me/d\\xe9j\\xe0.py:8 in wait: "]


def test_lines_of_a_dump_are_those_of_a_thread_if_every_rank_waits() -> None:
    assert [*map(str, frames_in_dump("\n".join([WAITS, HELPS, HARNESS])))] == [
        "/home/me/mine.py:5 in help: "
    ]


@pytest.mark.parametrize("name", ["sympy", "jinja2"])
def test_a_package_that_torch_requires_is_no_subject(name: str) -> None:
    file = importlib.util.find_spec(name)
    assert not is_subject_line(f"{file.origin}")


def test_a_package_that_torch_uses_where_it_is_installed_is_no_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.utils._cxx_pytree` calls optree, also within backward of a DTensor."""
    package = tmp_path / "optree"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    helpers_of_torch.cache_clear()
    try:
        assert not is_subject_line(str(package / "ops.py"))
        assert is_subject_line(str(tmp_path / "optree_like" / "ops.py"))
    finally:
        helpers_of_torch.cache_clear()


@pytest.mark.parametrize("name", ["torchlike", "torch_mine.py"])
def test_a_package_whose_name_begins_as_torch_is_a_subject(name: str) -> None:
    installed = Path(torch.__file__).parents[1]
    assert is_subject_line(str(installed / name / "wrapper.py"))
    assert not is_torch_line(str(installed / name / "wrapper.py"))
