"""What operators need beside the parts: provisioning, checks, logs, metrics, lifetimes.

`provisioning.py` brings schema, topics and definitions up to date; running it again changes
nothing. `doctor.py` collects all that is wrong with an installation, in words: misconfigured
topics, retention shorter than promised, and with `liveness.py` parts that are down, frozen or
stuck. Neither changes anything.

`definition_outbox.py` carries committed changes of definitions to `pop.definitions`; every API
process runs it, and they take turns. `lifetime.py` ends a part on a signal or when the process
that started it is gone. `logging.py` and `metrics_server.py` are configured once, at the start
of a process; `environment.py` reads the settings, and `errors.py` has what a command may fail
with.
"""
