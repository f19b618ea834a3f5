"""The methods that are compared: each is a function of what was played, one a file."""
