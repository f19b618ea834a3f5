"""What lies behind a violation: its harm, its lines, its fix, its waits."""
