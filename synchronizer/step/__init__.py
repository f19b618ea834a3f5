"""One step: the sequence of buckets, launch order, checks, rebuild, and norms."""
