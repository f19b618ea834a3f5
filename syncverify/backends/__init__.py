"""Where the ranks run."""
