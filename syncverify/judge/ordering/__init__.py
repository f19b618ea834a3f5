"""Happens-before on streams: races, early frees, remedies, held memory."""

from __future__ import annotations
