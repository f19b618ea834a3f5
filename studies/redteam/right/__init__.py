"""Right synchronizers that do something unusual."""
