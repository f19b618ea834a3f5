"""Stand-ins of the studies: CUDA streams on a CPU, ranks on threads, modes as subjects."""
