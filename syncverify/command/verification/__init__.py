"""A verification: the search on an open backend, its report, and what `verify` raises."""
