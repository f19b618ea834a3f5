"""One-line mistakes in right synchronizers, to see what the harness says about each."""
