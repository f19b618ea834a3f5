"""The simulated machine: ranks as threads of one process, taking turns."""
