"""Planning: which gradient is summed over which ranks, in which bucket, and when."""
