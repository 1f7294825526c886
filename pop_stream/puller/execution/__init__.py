"""Runs claimed attempts: one task each, their operations in the order of their dependencies.

`executor.AttemptExecutor` owns the attempts of a puller. It is given one when its claim is
committed, and reports its end. In between an attempt *waits for a runner*, in the order of the
claims; *resumes*, that is, waits for what earlier attempts left, without a runner, since the
database may be away for long; *runs*; and *is stopping*, once the scheduler has said so on
`pop.controls`, a newer attempt of the agenda has come, or the puller stops. An attempt ends
once, whatever happens to it at the same time (`ActiveAttempt.has_ended`).

`agenda_run.AgendaRun` is one attempt: the graph of operations, their results for references in
payloads, and what handlers append to it. After a failure it starts no further operation, and
lets those end that run. `operation_retrier.OperationRetrier` tries one operation, with its
time limit and pauses. `operation_run.OperationRun` is the state of an operation, and
whether it has changes that are not published yet; handlers in threads write to it.

`prior_results.PriorResultsReader` asks the API what earlier attempts left. An attempt after the
first waits for the answer as long as it takes, also of an agenda that came with one operation,
which may have appended others: to run one again that has succeeded, or to leave one out,
would be wrong, to wait is only late. An attempt has succeeded once all operations have: what
waits for an operation that is no more fails it.

What a handler does is not undone. One that ignores its cancellation is left behind after five
seconds; its thread goes on, and nothing that it reports counts.
"""
