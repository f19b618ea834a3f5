"""The simulated machine with ranks apart: each rank is a process, and they take turns."""
