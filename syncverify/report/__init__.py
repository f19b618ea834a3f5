"""What a search came to, for people and for programs."""
