"""What the words mean: plain values, valid by construction, without any I/O, clock or chance.

Every other room imports this one and it imports none of them; its own modules are layered as
the contracts in `pyproject.toml` list them. Values are frozen. What comes from outside is
checked once, where it is parsed, and every fault is listed by field, value and remedy
(`validation`, `errors.Issue`).

- `agenda`: a customer's unit of work, a graph of operations. `template` and `references`:
  agendas with tokens, filled in from a payload at submission and from earlier results at run
  time.
- `definitions`: customers, insights, pools, and the set in force; `revisions` decides how one
  changes, `definition_lists` what a list of them may ask for; `sharing` whose one is.
- `identity`, `tenancy`, `api_keys`: who asks, what an id chosen by a customer is called
  inside, and what a key's token looks like.
- `events`: what is written to Kafka, with its schema version.
- `errors`: the one tree of errors; its codes are stable for clients, logs and metrics.
- `ids`, `partitioning`, `retry`, `trace`, `validation`, `json_types`: small rules
  that several parts must apply alike.

Start with `agenda.Agenda` and `definitions.Insight`, then `events`.
"""
