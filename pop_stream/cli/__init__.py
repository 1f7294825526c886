"""The commands of the product: `pop-stream serve`, `submit`, `agenda`, `doctor` and others.

Commands parse options, call one function elsewhere and print what it returns; they decide
nothing. Long-running parts (`parts.py`) are composed in `composition/` and run until a signal.
Clients of the API (`agendas.py`, `submissions.py`, `definitions.py`, `imports.py`) go through
`client/`.
Operators' commands (`admin.py`, `keys.py`, `ledger.py`) work on the servers themselves.

The contract that scripts rely on: every command has `--help`; a failure exits with 1, wrong
usage with 2; what a command reports goes to standard output, errors to standard error in one
line without a trace; with `--json` the last line of standard output is one JSON object
(`output.py`).

A command imports what it runs inside its body, so that `--help` answers at once; a test holds
that. The lab's commands are added by `pop_stream.__main__`, for the product imports nothing of
the lab.
"""
