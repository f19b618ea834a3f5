"""The rank program, which plays a scenario on one rank of any backend."""
