"""All events on the topics: their types, their JSON, and the versions of their schema.

| module | topics |
|---|---|
| `lifecycle` | `pop.agenda-events`: what happened to an agenda, keyed by its id |
| `scheduling` | `pop.ready`, `pop.insight.<id>`, `pop.controls`, and what parts report on |
|  | `pop.decisions`, `pop.query-replies` and `pop.dead-letters` |
| `quota` | `pop.quota-usage`: ready agendas and submissions in flight, by customer |
| `pull` | `pop.poll-demand`, `pop.deliveries`: agendas for HTTP workers |
| `base` | what all of them share |
| `codec` | encoding, decoding, frames, and the schema version of a record |

An event is a JSON object whose `type` names it; instants are RFC 3339 in UTC. The value of a
record is one event, or a list of events, a frame; both decode the same way. Events are
immutable, and delivered at least once: an identity in each (agenda and attempt, an origin, a
number) lets a reader recognise a repeat.

Unknown fields are ignored, so a reader accepts what the next version adds. A header names the
version of the schema, which is raised only where an older reader could misunderstand a record;
a reader accepts its own version and those next to it. The JSON schemas in `topics/schemas` are
generated from these types, and a test holds them.

Start reading with `lifecycle`; `policy.lifecycle` says what follows from each event.
"""
