"""What every request goes through: bodies, callers, conditions, answers and problems."""
