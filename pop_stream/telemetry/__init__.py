"""What every process measures of itself, and how Prometheus reads it.

`process.py` has what all parts count alike and makes the registry of a part; `progress.py` has
lag and age of what consumers handle; `histograms.py` has histograms whose labels are bounded
and whose buckets name an example; `server.py` serves a part's `/metrics`, `/healthz` and
`/readyz`. What only one part knows is in that part's own `metrics.py`.

`tracing.py` switches spans on; `spans.py` has those of an agenda's way; `span_export.py`
samples, queues and exports them. A process in which tracing is off has imported neither of the
two.

Who measures never waits. Counters and histograms are in memory, and what a server has to be
asked for is asked by a task of its own, whose last answer is shown. A scrape is answered from
memory in the event loop, so one that reads slowly, or not at all, holds up its own connection
and nothing else.

Every label has few values by construction. Parts, routes, states and the operation types of
registered handlers are known beforehand; insights and customers are counted, and what comes
beyond the most that are named is summed as `(others)`.
"""
