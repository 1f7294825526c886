"""Whose turn is next: customers of one insight, and each one's own line."""
