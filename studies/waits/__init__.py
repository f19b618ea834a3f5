"""The waits of the built-in subjects: their words, and a check of the superfluous ones."""
