"""Playing: threads, processes or GPUs on which the ranks of a program run."""
