"""What runs before what on streams that only sometimes wait for each other."""

from __future__ import annotations
