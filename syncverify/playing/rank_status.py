"""The status of a rank that plays: its progress, its collectives, and its subject's lines."""

from __future__ import annotations

import sys
import threading
import traceback

from syncverify.playing.messages import Status
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.source_files import is_torch_line
from syncverify.trace.stacks import outermost_frames


def status_of(player: threading.Thread, recorder: Recorder) -> Status:
    """Return the position of the thread that plays, as another thread sees it."""
    frame = sys._current_frames().get(player.ident or 0)
    stack = traceback.extract_stack(frame) if frame is not None else []
    events = list(recorder.trace)
    return Status(
        progress=len(events),
        lines=tuple(outermost_frames(stack)),
        in_torch=bool(stack) and is_torch_line(stack[-1].filename),
        launches=tuple(e for e in events if isinstance(e, CollectiveLaunch)),
    )
