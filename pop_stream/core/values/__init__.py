"""Small things that all else is said in: ids, instants, callers. None knows an agenda."""
