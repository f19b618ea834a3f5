"""Training scripts as they are: recorded on simulated ranks in processes, and judged."""
