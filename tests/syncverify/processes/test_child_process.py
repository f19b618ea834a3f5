"""Child processes end with their parent at any time."""

import signal
import subprocess
import sys
from multiprocessing import Pipe

import pytest

from syncverify.processes.child_process import end_when_closed

# No thread of Python runs while this matches, which takes years.
KEEPS_THE_GIL = (
    "import re; print('at work', flush=True); re.match('(a+)+$', 'a' * 99 + 'b')"
)


@pytest.mark.skipif(sys.platform != "linux", reason="SIGIO ends no process elsewhere")
def test_closed_pipe_ends_a_process_that_keeps_the_gil() -> None:
    reading, writing = Pipe(duplex=False)
    with subprocess.Popen(
        [sys.executable, "-c", KEEPS_THE_GIL],
        pass_fds=[reading.fileno()],
        stdout=subprocess.PIPE,
    ) as child:
        end_when_closed(reading.fileno(), child.pid)
        reading.close()
        assert child.stdout is not None
        assert child.stdout.readline() == b"at work\n"
        assert child.poll() is None
        writing.close()
        assert child.wait(60) == -signal.SIGKILL
