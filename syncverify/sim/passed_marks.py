"""What a host knows to be over: the marks that it has waited for, and all before those.

A host that polls a mark may be told "not yet" by bad timing, unless it has waited for
the mark, or for something that the device reaches only afterwards.
"""

from __future__ import annotations

# The latest mark of each stream that is passed; marks count up on a rank.
_Passed = dict[str, int]


class PassedMarks:
    """Follows the marks and waits of one rank."""

    def __init__(self) -> None:
        self._host: _Passed = {}
        # When a stream gets to its end, and when the device gets to a mark.
        self._at_end: dict[str, _Passed] = {}
        self._at_mark: dict[int, tuple[str, _Passed]] = {}

    def mark(self, stream: str, mark: int) -> None:
        """Note a mark at the end of a stream; whatever is queued follows the host."""
        passed = self._at_end.setdefault(stream, {})
        _merge(passed, self._host)
        passed[stream] = mark
        self._at_mark[mark] = (stream, dict(passed))

    def wait(self, stream: str, mark: int) -> None:
        """Note that a stream waits for a mark."""
        _merge(self._at_end.setdefault(stream, {}), self._at_mark[mark][1])

    def wait_on_host(self, mark: int) -> None:
        """Note that the host waits for a mark."""
        _merge(self._host, self._at_mark[mark][1])

    def host_has_passed(self, mark: int) -> bool:
        """Tell whether the host knows that the device has passed a mark."""
        return self._host.get(self._at_mark[mark][0], 0) >= mark

    def host_has_passed_end(self, stream: str) -> bool:
        """Tell whether the host knows of nothing that a stream has still to do.

        Returns:
            True even if operators came after the last mark or wait, as they are not
            followed here: to say "not yet" of a stream that is idle would be wrong.
        """
        at_end = self._at_end.get(stream, {})
        return all(self._host.get(other, 0) >= mark for other, mark in at_end.items())


def _merge(passed: _Passed, other: _Passed) -> None:
    for stream, mark in other.items():
        passed[stream] = max(mark, passed.get(stream, 0))
