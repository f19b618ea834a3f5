"""The one format of messages between processes, which no bytes of a subject break.

A subject may write to descriptors that are not its own. So each message is a pickled value
after a mark and its length, and a reader drops all that is in no message.
"""

import contextlib
import os
import pickle
import struct
import threading
from collections import deque
from typing import Any

_MARK = bytes.fromhex("0a b5 7e d2 19 c8 43 f6 0d 9b e1 52 a7 3c 88 f4")
_LENGTH = struct.Struct("<Q")
_HEADER_BYTES = len(_MARK) + _LENGTH.size
_READ_BYTES = 2**20


class Wire:
    """This process' end of a pipe or a socket, on which values come and go.

    The wire owns the descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._heard = bytearray()
        self._unread = deque[Any]()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def send(self, message: object) -> None:
        """Send a value, from any thread.

        A copy of this process, which a subject has forked, ends here: what it says would be
        heard as the word of this process. See Note [A copy of a rank].

        Raises:
            OSError: The other process is gone.
        """
        if os.getpid() != self._pid:  # before the lock, which the fork may have copied
            os._exit(0)
        data = pickle.dumps(message)
        frame = memoryview(_MARK + _LENGTH.pack(len(data)) + data)
        with self._lock:
            while frame:
                frame = frame[os.write(self._descriptor, frame) :]

    def receive(self) -> Any:
        """Return the next value; wait until it is there.

        Raises:
            EOFError: The other process is gone.
        """
        while not self._unread:
            self._unread.extend(self.hear())
        return self._unread.popleft()

    def hear(self) -> list[Any]:
        """Read once.

        Raises:
            EOFError: The other process is gone.
        """
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = os.read(self._descriptor, _READ_BYTES)
        if not data:
            raise EOFError
        self._heard += data
        found = list[Any]()
        while (message := self._next()) is not None:
            found.append(pickle.loads(message))
        return found

    def _next(self) -> bytes | None:
        """Take the next pickle out of what was heard; None if none is complete."""
        heard, start = self._heard, self._heard.find(_MARK)
        del heard[: start if start >= 0 else max(0, len(heard) - len(_MARK))]
        if start < 0 or len(heard) < _HEADER_BYTES:
            return None
        end = _HEADER_BYTES + _LENGTH.unpack_from(heard, len(_MARK))[0]
        if len(heard) < end:
            return None
        message = bytes(heard[_HEADER_BYTES:end])
        del heard[:end]
        return message

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)
