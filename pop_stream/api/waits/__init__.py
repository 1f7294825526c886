"""What ends waits of operations from outside: signals, completions, and decisions of people.

A signal is kept in the database, and so is a completion, which its token entitles to; the part
`pop_stream.conditions` ends the waits for them. A decision is about one operation, so it is
published at once; it is in the audit log first.

Start with `endpoints`, then `completions`.
"""
