"""Processes of this machine: their start, their end, and signs of life; without torch."""
