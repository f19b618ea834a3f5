"""When something happens: within a step, between steps, at the end."""
