"""Customers, pools, insights and templates over HTTP: four kinds, one set of handlers.

`resource.py` reads, writes and lists one kind; `models.py` has the types of its answers and of
its merge patches; `naming.py` resolves which definition an id means, since customers choose
ids of their own for templates and two customers may choose the same.

Every write is a `Revision`: a pure decision about what is stored now, made inside the
transaction that stores its outcome, a version and an audit row. `If-Match` and `If-None-Match`
(`http/conditions.py`) make a write conditional on a version. A commit leaves a row in an
outbox; its relay publishes it to `pop.definitions`, where every other part reads it. So a
definition that was answered with 200 is never lost, and is in force within a second.

While Postgres is away writes and reads of this room answer 503; the parts go on with the
definitions they have read.
"""
