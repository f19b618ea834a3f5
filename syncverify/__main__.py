"""`python -m syncverify` is the command `syncverify`."""

from __future__ import annotations

from syncverify.cli import main

if __name__ == "__main__":
    main()
