"""Stand-ins of the studies: CUDA streams on a CPU, and modes as subjects."""
