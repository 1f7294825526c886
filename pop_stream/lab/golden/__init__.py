"""Golden topics: all that one fixed run of the whole system leaves behind, made comparable.

The judge of every change that must not change behaviour. `pop-stream lab golden` starts
`pop-stream dev` in a folder of its own, gives it one fixed piece of work, waits until nothing
comes any more, and reads every record of every topic, all final summaries with their progress,
the answers of the HTTP API, and which columns of which tables are in use. `--record` writes
that down, without what differs between two runs of the same code; `--compare` prints what
differs from what was written down.

Nothing of the product is imported, so that the same judge fits the code before and after a
move: known of it are its command line, its HTTP API, where its data folder keeps ports and the
password, and the names in the golden file. A name that changes on purpose is put into
`normal_form.RENAMES` until the golden file is recorded again.

Modules, in the order of reading:

- `workload`: the work. It covers each kind of agenda, command, failure, quota, webhook and
  pull once, and waits at each step for what the next one needs, so that what happens is the
  same in each run and only when differs.
- `world`: the system seen from outside, with which the work is done, and the HTTP server that
  operations and webhooks call.
- `run`: starts and ends the system, and reads topics, answers, summaries and tables.
- `normal_form`: what is left out or masked, the file's format, and the comparison.
- `command`: `pop-stream lab golden`.

A run takes about a minute. A run that fails leaves its folder, with all logs, and says where it
is. What the comparison cannot see: durations, the order of records of different agendas, and
how events are grouped into records, which chance decides.
"""
