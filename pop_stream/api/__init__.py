"""The HTTP API: one aiohttp application made from one table of routes.

What it owns: how a request becomes a decision of the policy, a record on Kafka or a row of
Postgres, and how errors become RFC 9457 problems. It decides nothing about scheduling. It is
given ports (`app.ApiPorts`) and imports neither asyncpg nor aiokafka.

A request passes the same rooms whatever it asks for:

1. `http/server.py` gives it an id, counts it, and turns whatever is raised into a problem.
2. `http/access.py` authenticates the caller and looks up the object that the path names. What
   the caller may not see answers 404, as if it did not exist; no handler can forget that check.
3. The resource's handler reads the body within bounds and acts: `submissions/`, `agendas/`,
   `definitions/`, `keys/`, `pulls/`.

`routes/` has one table for each resource. The router and the OpenAPI document are both made
from it, so neither can lack what the other has.

States and failures. Submissions need Kafka alone: 202 follows the acknowledgement of the
broker. Reads and definitions need Postgres: while it is away they answer 503 with
`Retry-After`, and submitting, pulling and reporting go on. A process that is killed loses only
answers: what was acknowledged is on Kafka, and a repeated submission with the same id is
recognised. Every process is equal; any number may run behind one address.

Start reading at `routes/table.py`, then follow one row: `submitAgendas` leads to
`submissions/submissions.py`.
"""
