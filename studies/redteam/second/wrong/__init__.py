"""Wrong synchronizers of the second red team."""
