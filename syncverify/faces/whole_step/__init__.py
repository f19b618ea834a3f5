"""Parity: a whole training step on any mesh, compared with the same step on one rank."""
