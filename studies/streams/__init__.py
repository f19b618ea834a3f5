"""The verdicts of the backends `sim` and `streams` on the same scenarios."""
