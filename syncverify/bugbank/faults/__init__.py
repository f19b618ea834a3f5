"""What is left after an error."""
