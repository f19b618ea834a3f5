"""State of the process that ranks must not share, and that changes with the turn."""
