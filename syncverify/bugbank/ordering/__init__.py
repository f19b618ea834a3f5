"""What runs on which stream, and what waits for what."""
