"""Benchmarks of this project: one package for the harness, one for the synchronizer."""
