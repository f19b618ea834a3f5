"""Whether all ranks exchange the same things in the same order."""
