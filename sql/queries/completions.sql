-- name: find_completion
-- How an operation ended that was handed over, the last time.
select
    agenda_id,
    operation,
    token,
    attempt,
    outcome,
    result,
    reason,
    is_retryable,
    completed_at
from completions
where agenda_id = $1 and operation = $2;

-- name: decide_completion
-- Keeps a completion: the first by its token, and none by a token of an older attempt than what is
-- kept. Of an agenda that is there no more, none.
insert into completions (
    agenda_id, operation, token, attempt, outcome, result, reason, is_retryable, completed_at
)
select $1, $2, $3, $4, $5, $6, $7, $8, $9
from agendas
where agenda_id = $1
on conflict (agenda_id, operation) do update set
    token = excluded.token,
    attempt = excluded.attempt,
    outcome = excluded.outcome,
    result = excluded.result,
    reason = excluded.reason,
    is_retryable = excluded.is_retryable,
    completed_at = excluded.completed_at
where completions.token <> excluded.token and completions.attempt <= excluded.attempt;

-- name: time_out_completions
-- Decides that hand-overs are over which nobody has completed in time, as a completion would be
-- decided: so none can come after it.
insert into completions (
    agenda_id, operation, token, attempt, outcome, reason, is_retryable, completed_at
)
select
    operations.agenda_id,
    operations.name,
    operations.wait ->> 'token',
    agendas.attempt,
    'timed_out',
    '',
    true,
    $1
from operations
inner join agendas on operations.agenda_id = agendas.agenda_id
where
    operations.wait is not null
    and operations.state = 'waiting'
    and operations.wait ->> 'token' is not null
    and (operations.wait ->> 'gives_up_at')::timestamptz <= $1
    and agendas.state in ('waiting', 'held')
on conflict (agenda_id, operation) do update set
    token = excluded.token,
    attempt = excluded.attempt,
    outcome = excluded.outcome,
    result = excluded.result,
    reason = excluded.reason,
    is_retryable = excluded.is_retryable,
    completed_at = excluded.completed_at
where completions.token <> excluded.token;

-- name: completed_operations
-- Operations that were handed over and have been completed, or timed out, of agendas that wait for
-- nothing else to begin.
select
    operations.agenda_id,
    operations.name,
    agendas.insight_id,
    agendas.attempt,
    completions.result,
    completions.outcome,
    completions.reason,
    completions.is_retryable,
    (operations.wait ->> 'since')::timestamptz as since
from operations
inner join agendas on operations.agenda_id = agendas.agenda_id
inner join
    completions
    on operations.agenda_id = completions.agenda_id
    and operations.name = completions.operation
    and operations.wait ->> 'token' = completions.token
where
    operations.wait is not null
    and operations.state = 'waiting'
    and agendas.state in ('waiting', 'held')
order by operations.agenda_id, operations.name
limit $1;
