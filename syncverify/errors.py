"""Errors of the harness itself, apart from what it finds in a subject."""

from __future__ import annotations


class SyncverifyError(Exception):
    """Base of every error that the harness raises on its own behalf."""


class UsageError(SyncverifyError):
    """The caller asked for something that cannot be run; the message says what."""


class SubjectError(UsageError):
    """The subject cannot be found, or lacks a part of the subject API."""


class EnvironmentNotSupportedError(UsageError):
    """The machine lacks what the chosen backend needs."""


class ScenarioFormatError(UsageError):
    """A scenario, token or report file cannot be read."""


class InternalError(SyncverifyError):
    """The harness itself is at fault: a verdict would mean nothing."""
