"""`python -m syncverify`: the command `syncverify`."""

from __future__ import annotations

from syncverify.command.main import main

if __name__ == "__main__":
    main()
