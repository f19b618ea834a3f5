"""What is summed, over whom, and by what it is divided."""
