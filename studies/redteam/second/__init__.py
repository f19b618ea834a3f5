"""The second red team, which was written without knowledge of the search it is played against."""
