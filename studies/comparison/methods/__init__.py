"""The methods that are compared: each is a function of a judged run, one a file."""
