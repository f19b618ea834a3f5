"""Errors of the harness itself, apart from its findings in a subject."""


class SyncverifyError(Exception):
    """Base of every error that the harness raises, and no subject."""


class RunEndedError(BaseException):
    """The run has ended: unwinds a rank thread, and must not be swallowed."""


class UsageError(SyncverifyError):
    """The caller's request cannot be run; the message names the reason."""


class SubjectError(UsageError):
    """The subject cannot be found, or lacks a part of the subject API."""


class EnvironmentNotSupportedError(UsageError):
    """The machine lacks a requirement of the chosen backend."""


class ScenarioFormatError(UsageError):
    """A scenario, token or report file cannot be read."""


class NoVerdictError(SyncverifyError):
    """A process of the job was lost, and nothing tells whether the subject is the cause."""


class UnknownLayerError(ScenarioFormatError):
    """A scenario trains a layer of a user's own that the contract does not provide."""


class LayerError(UsageError):
    """A layer of a user's own cannot be trained."""


class InternalError(SyncverifyError):
    """The harness itself is at fault, so a verdict would mean nothing."""
