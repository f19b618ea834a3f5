"""State that a process has once, which belongs to the training program."""
