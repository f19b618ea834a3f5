"""Scenarios: immutable values that describe one small distributed training run."""
