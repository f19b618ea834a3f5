"""The last line of a replay: whether the recorded violation occurs again."""

from __future__ import annotations

from collections.abc import Container

from syncverify.judge.violation import Identity


def reproduced_line(
    expected: Identity, found: Container[Identity], subject: str, *, is_right: bool
) -> str:
    """Return whether a subject shows a violation again.

    Args:
        expected: Property and cause of the recorded violation.
        found: Those of the violations that the replay has found.
        subject: The subject as the user named it.
        is_right: Whether the replay has found nothing.
    """
    name, cause = expected
    named = f"{name} ({cause})"
    if expected in found:
        return f"REPRODUCED: {subject} violates {named}"
    if is_right:
        return f"NOT REPRODUCED: {subject} holds {named}"
    return f"NOT REPRODUCED: {subject} violates something else than {named}"
