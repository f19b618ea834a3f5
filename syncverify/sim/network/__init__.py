"""The simulated network: process group, communicators, collectives, store."""
