"""The marks that the device has reached for certain, as the host knows.

These are the marks that the host has waited for, and all marks ordered before them.

A host that polls a mark may get "not yet" by bad timing, unless it has waited for the
mark, or for a mark that the device reaches only afterwards.
"""

from __future__ import annotations

# By stream: the latest mark that is reached. Marks count up on a rank.
_Reached = dict[str, int]


class ReachedMarks:
    """The marks and waits of one rank, as a small vector clock for each mark."""

    def __init__(self) -> None:
        self._host: _Reached = {}
        # Marks reached for certain once a stream has reached its end, or a mark.
        self._at_end: dict[str, _Reached] = {}
        self._at_mark: dict[int, tuple[str, _Reached]] = {}

    def mark(self, stream: str, mark: int) -> None:
        """Note a mark at the end of a stream; all queued work comes after the host's waits."""
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

    def host_has_reached(self, mark: int) -> bool:
        """Tell whether the host knows that the device has reached a mark."""
        return self._host.get(self._at_mark[mark][0], 0) >= mark

    def host_has_reached_end(self, stream: str) -> bool:
        """Return whether the host knows that a stream has reached its last mark.

        True even if operators came after the last mark or wait, since operators are not
        recorded here: "not yet" would be wrong for an idle stream.
        """
        at_end = self._at_end.get(stream, {})
        return all(self._host.get(other, 0) >= mark for other, mark in at_end.items())


def _merge(passed: _Reached, other: _Reached) -> None:
    for stream, mark in other.items():
        passed[stream] = max(mark, passed.get(stream, 0))
