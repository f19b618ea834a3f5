"""The command `syncverify`, also as `python -m syncverify`."""

import os
import sys


def main() -> None:
    """Run the command line; Ctrl-C during its imports ends it as at any other time."""
    try:
        from syncverify.command.main import main as run  # takes a moment
        from syncverify.command.process_exit import WHOLE_PROCESS

        run(WHOLE_PROCESS)
    except KeyboardInterrupt:
        print("syncverify: interrupted", file=sys.stderr, flush=True)  # noqa: T201
        # Python itself would end by SIGINT where an interrupt came within an `exec`.
        os._exit(130)


if __name__ == "__main__":
    main()
