"""Kill processes of the command at random moments, and judge how it ends."""
