"""HTTP itself: what every request passes, whatever it asks for.

`server.py` listens, stops in order and stands around every request. `correlation.py` ties its
log lines to its answer. `access.py` authenticates the caller and authorises it for the object
in the path; `parameters.py` says what an id in a path may look like. `body.py` reads bodies
within bounds of size, time and memory and cuts lists into agendas without holding up other
requests. `conditions.py` has ETags. `answers.py` writes JSON and bounds how long a dependency
is waited for. `errors.py` is the tree of what can be refused here, and `problems.py` the one
place where an error becomes a status and an RFC 9457 document. `route.py` is a row of the
table of routes, and `openapi.py` makes the document from those rows. `metrics.py` counts.

Nothing here knows an agenda or a definition, but for what their ids look like. A fault of ours
becomes a 500 without a trace; the trace goes to the log under the id of the request.
"""
