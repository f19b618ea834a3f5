"""What a training program does around the calls of a subject."""
