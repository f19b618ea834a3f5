"""Results as text, as JSON and as pages: of a search here, of other plays in rooms of their own."""
