"""Turns: which rank thread runs next, and the exploration of schedules."""
