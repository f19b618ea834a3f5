"""Owners of commands whose children play what a subject could do to them.

The processes import no torch. Their owners have little patience.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
# The arguments: the act of the first child, and of the second one.
SCRIPT = """
import ctypes, fcntl, functools, os, signal, sys, time, warnings
from syncverify.playing.announcement import announce
from syncverify.command import owner
from syncverify.command.child import Patience
from syncverify.command.process_exit import complain, leave_at_once, tell_end
from syncverify.processes import owner_link
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.scenario.replay_token import Reproducer, encode

owner_link._BEAT_SECONDS = 0.1
times = dict(silence=0.8, suspicion=0.3, confirmation=0.4, release=0.1, grace=0.1)
PATIENCE = Patience(**{**times, "tick": 0.05, **eval(os.environ.get("PATIENCE", "{}"))})
owner.owned = functools.partial(owner.owned, patience=PATIENCE)
WEIGHT = ParameterSpec("w", (), ("R",))
SCENARIO = Scenario(MeshSpec((1,), ("dp",)), (WEIGHT,), (1,), 64)

def block():
    print("blocks", flush=True)
    ctypes.PyDLL(None).pause()

# Python 3.12 warns of forks beside threads; subjects fork where nobody shows that.
warnings.simplefilter("ignore", DeprecationWarning)

def fork(then):
    if os.fork():
        then()
    signal.pause()

def goes_on_with(path):
    # Wait in C, and keep the GIL, until another process opens the FIFO.
    ctypes.PyDLL(None).open(path.encode(), os.O_RDONLY)

def lets_go_on(path):
    os.open(path, os.O_RDWR)  # waits for nobody

def locks(path):
    # Wait in C, and keep the GIL, for a lock that ends with its process.
    ctypes.PyDLL(None).flock(os.open(path, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)

def says(text):
    # Write to all descriptors, as a subject may that closes or uses those of others.
    for descriptor in range(3, 40):
        try:
            os.write(descriptor, text)
        except OSError:
            pass

def naps(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))

def is_new(path):
    # Tell whether no process has asked before.
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

def ends(code):
    tell_end(code)
    sys.exit(code)

def loses():
    token = encode(Reproducer("", "", SCENARIO))
    owner_link.leave_lost(token, owner_link.Lost("process_died", "ended by signal 4"))

def act(words):
    assert "torch" not in sys.modules or "PREPARE" in os.environ
    print("playing", flush=True)
    for word in words.split(";"):
        eval(word)
    return 0

exec(os.environ.get("PREPARE", ""))
first, second = sys.argv[1:]
if second == "bank":  # the command `bank`, with an act in the place of its execution
    from types import SimpleNamespace
    from syncverify.__main__ import main
    fake = SimpleNamespace(execute=lambda _options: act(first))
    sys.modules["syncverify.command.bank.execution"] = fake
    sys.modules["syncverify.command.verification.reported_search"] = fake  # or the command imports torch for it
    sys.argv[1:] = ["bank"]
    main()
sys.exit(owner.owned(lambda: act(first), lambda token: act(second), "play {}".format))
"""
_started: list[subprocess.Popen[str]] = []
PLAYS = "announce(SCENARIO)"
DIES = f"{PLAYS};os._exit(0)"
BLOCKS = f"{PLAYS};block()"


def start(
    first: str,
    second: str = "ends(0)",
    *,
    descriptors: tuple[int, ...] = (),
    patience: dict[str, float] | None = None,
    parent: list[str] | None = None,
    shell: str = "",
    **variables: str,
) -> subprocess.Popen[str]:
    """Start an owner; pytest's timeout is the bound of a test that fails.

    `first` and `second` are acts of the two children, separated by `;`. `bank` in the place of the
    second is the command of that name. `parent` starts the owner in the place of this process, and a
    `shell` executes statements first in the process that becomes the owner. `patience` is in seconds.
    """
    command = [sys.executable, "-c", SCRIPT, first, second]
    if parent is not None:
        launcher = f"import subprocess, sys; sys.exit(subprocess.call({command!r}))"
        command = [sys.executable, "-c", launcher, *parent]
    if shell:
        command = ["sh", "-c", f'{shell}; exec "$@"', "sh", *command]
    own = {"PYTHONPATH": str(ROOT), "PATIENCE": repr(patience or {})}
    running = subprocess.Popen(
        command,
        env={**os.environ, **own, **variables},
        pass_fds=descriptors,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _started.append(running)
    return running


def end_all() -> None:
    """End what a test that fails leaves: Python would warn of it in a later test."""
    while _started:
        running = _started.pop()
        running.kill()
        running.wait()
        for stream in (running.stdout, running.stderr):
            stream.close()


def played(first: str, second: str = "ends(0)", **options: Any) -> tuple[int, str, str]:
    """Return exit code, output and complaint; they come when no process is left."""
    running = start(first, second, **options)
    out, err = running.communicate()
    return running.returncode, out, err
