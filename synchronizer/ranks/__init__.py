"""Sets of ranks, their process groups, and notes through the store."""
