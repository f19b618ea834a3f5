"""Recording: operators and memory accesses of one simulated rank."""
