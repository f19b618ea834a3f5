"""The error that a subject raised on a scenario that it has to play."""

from __future__ import annotations

from syncverify.plain_text import kind_of, message_of
from syncverify.trace.records import Moment


class SubjectRaisedError(Exception):
    """The subject raised on a legal scenario.

    Attributes:
        moment: Moment of the call that raised.
        original: Exception of the subject.
    """

    def __init__(self, moment: Moment, original: BaseException) -> None:
        super().__init__(f"{moment}: {kind_of(original)}: {message_of(original)}")
        self.moment = moment
        self.original = original
