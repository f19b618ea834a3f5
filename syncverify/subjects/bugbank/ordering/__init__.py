"""Defects of order: streams, events and waits."""
