"""Stats and usage over HTTP: what the rollup counted by hour, added up as asked.

A customer sees its own rows only; one that names others gets nothing. Ranges are whole hours
of UTC, and bounded, so that a request costs the rows of its range. Start at `endpoints`.
"""
