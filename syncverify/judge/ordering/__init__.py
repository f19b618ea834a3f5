"""Happens-before on streams: races, early frees, remedies, held memory."""
