"""Everything that is served, as rows of one table."""
