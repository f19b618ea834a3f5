"""Traces as pictures of time: logical ticks, events in lanes, and arrows between them."""
