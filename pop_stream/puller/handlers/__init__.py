"""Functions that do operations: how they are registered and called, and which are built in.

`registry.Handlers` maps operation types to functions. An `async` function runs in the event
loop; any other in a thread of its own, as many as the puller runs agendas at a time.
`invocation` calls it with an `OperationCall`, or a `SyncOperationCall` in a thread: the input
with all references replaced, and methods to report progress, leave diagnostics and append
operations. What it returns is the result; what it raises says by `errors.FinalError` or
`errors.RetryableError` whether trying again can help, and any other exception counts as
retryable.

A handler is cancelled if its agenda is to stop, its lease is lost, its time is up or the puller
stops. A thread cannot be cancelled: `SyncOperationCall.stopping` is set, and after five
seconds the puller goes on without it.

Built in are `noop`, `sleep`, `append`, `http` (`http.HttpHandler`), `command`
(`command.CommandHandler`, which runs only programs that the operator allows) and `split`
(`split.SplitHandler`, which submits the children of an agenda). `builtin.builtin` makes a
registry of them.
"""
