"""Right synchronizers of the second red team."""
