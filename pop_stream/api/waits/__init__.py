"""What ends the waits of operations from outside: signals, and decisions of people.

A signal is kept in the database, and the part `pop_stream.conditions` ends the waits for it. A
decision is about one operation, so it is published at once; it is in the audit log first.

Start with `endpoints`.
"""
