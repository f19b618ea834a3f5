"""Source lines: the thread of a dump that keeps Python from running, and its lines."""

import threading

from syncverify.backends import worker
from syncverify.trace.source_lines import frames_in_dump

WAITS = f"""\
Thread 0x00007f10 (most recent call first):
  File "{threading.__file__}", line 327 in wait
  File "/home/me/mine.py", line 3 in poll
"""
HELPS = """\
Thread 0x00007f20 (most recent call first):
  File "/home/me/mine.py", line 5 in help
"""
RANK = f"""\
Thread 0x00007f30 (most recent call first):
  File "/home/me/d\\xe9j\\xe0.py", line 8 in wait
  File "{worker.__file__}", line 90 in _play_and_send
  File "{threading.__file__}", line 1 in run
"""
HARNESS = f"""\
Current thread 0x00007f40 (most recent call first):
  File "{worker.__file__}", line 70 in serve
"""


def test_lines_of_a_dump_are_those_of_the_rank_and_not_of_a_thread_that_waits() -> None:
    dump = "\n".join([WAITS, HELPS, RANK, HARNESS])
    assert frames_in_dump(dump) == ["/home/me/d\\xe9j\\xe0.py:8 in wait: "]


def test_lines_of_a_dump_are_those_of_a_thread_if_every_rank_waits() -> None:
    assert frames_in_dump("\n".join([WAITS, HELPS, HARNESS])) == [
        "/home/me/mine.py:5 in help: "
    ]


def test_a_dump_without_a_line_of_the_subject_has_no_lines() -> None:
    assert frames_in_dump("\n".join([WAITS, HARNESS])) == []
    assert frames_in_dump("") == []
