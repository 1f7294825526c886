"""What bodies and answers of the HTTP API look like: typed, and nothing else.

The API encodes them, the client decodes them, and the OpenAPI document has their schemas. They
import the model and no driver, so that a client needs neither aiohttp's server nor Kafka.

Answers are msgspec structs (`base.Answer`): an answer may gain fields, and a client ignores
those it does not know. Bodies that people write are pydantic models, which say what is wrong
with which field. Instants are RFC 3339 in UTC, durations are numbers with their unit in the
name.

`agendas.py`, `queues.py` and `submissions.py` are what is read; `commands.py`, `keys.py` and
`pulls.py` also have what is sent.
"""
