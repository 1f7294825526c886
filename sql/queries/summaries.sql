-- name: lock_agendas
-- Keeps other processes from changing agendas, in an order that cannot deadlock.
select from agendas
where agenda_id = any($1::text[])
order by agenda_id collate "C"
for update;

-- name: select_agendas
-- Summaries to fold on, but for the body, which no event changes.
select
    agenda_id, version, state, attempt, insight_id, customer_id, title, link_id, priority,
    operation_names, percent, message, puller_id, last_heartbeat_at, lease_ms, accepted_at, emitted_at,
    started_at, ended_at, issues, diagnostics,
    waiting_until, waiting_for, stopping, history, callback_url, callback_format, appended,
    template_id, accounted_attempt
from agendas
where agenda_id = any($1::text[]);

-- name: select_operations
-- Operations of the agendas whose operations a batch reports.
select
    agenda_id, name, state, percent, message, started_at, ended_at, result, diagnostics,
    reported_at, tries, prior, wait
from operations
where agenda_id = any($1::text[]);

-- name: upsert_agendas
-- Inserts new agendas and updates known ones that are still in the version that was read.
-- Fewer rows than given: another process has changed one of them since.
insert into agendas as known (
    agenda_id, version, state, attempt, insight_id, customer_id, title, link_id, priority,
    body, operation_names, percent, message, puller_id, last_heartbeat_at, lease_ms, accepted_at,
    emitted_at, started_at, ended_at, issues, diagnostics,
    waiting_until, waiting_for, stopping, history, callback_url, callback_format, appended,
    external_id, correlation_id, template_id,
    accounted_attempt
)
select given_row.* from unnest($1::described_agenda_row[]) as given_row
on conflict (agenda_id) do update set
    version = excluded.version,
    state = excluded.state,
    attempt = excluded.attempt,
    insight_id = excluded.insight_id,
    customer_id = excluded.customer_id,
    title = excluded.title,
    link_id = excluded.link_id,
    priority = excluded.priority,
    body = coalesce(excluded.body, known.body),
    operation_names = excluded.operation_names,
    percent = excluded.percent,
    message = excluded.message,
    puller_id = excluded.puller_id,
    last_heartbeat_at = excluded.last_heartbeat_at,
    lease_ms = excluded.lease_ms,
    accepted_at = excluded.accepted_at,
    emitted_at = excluded.emitted_at,
    started_at = excluded.started_at,
    ended_at = excluded.ended_at,
    issues = excluded.issues,
    diagnostics = excluded.diagnostics,
    waiting_until = excluded.waiting_until,
    waiting_for = excluded.waiting_for,
    stopping = excluded.stopping,
    history = excluded.history,
    callback_url = excluded.callback_url,
    callback_format = excluded.callback_format,
    appended = excluded.appended,
    external_id = coalesce(excluded.external_id, known.external_id),
    correlation_id = coalesce(excluded.correlation_id, known.correlation_id),
    template_id = coalesce(excluded.template_id, known.template_id),
    accounted_attempt = excluded.accounted_attempt,
    updated_at = now()
where known.version = excluded.version - 1;

-- name: update_agenda_progress
-- Updates known agendas of which nothing changed but how far they are, if they are still in the
-- version that was read. Fewer rows than given: another process has changed one of them since.
update agendas as known
set
    version = progress.version,
    state = progress.state,
    attempt = progress.attempt,
    priority = progress.priority,
    percent = progress.percent,
    message = progress.message,
    puller_id = progress.puller_id,
    last_heartbeat_at = progress.last_heartbeat_at,
    lease_ms = progress.lease_ms,
    emitted_at = progress.emitted_at,
    started_at = progress.started_at,
    ended_at = progress.ended_at,
    diagnostics = progress.diagnostics,
    waiting_until = progress.waiting_until,
    waiting_for = progress.waiting_for,
    stopping = progress.stopping,
    history = progress.history,
    appended = progress.appended,
    accounted_attempt = progress.accounted_attempt,
    updated_at = now()
from unnest($1::agenda_progress_row[]) as progress
where known.agenda_id = progress.agenda_id and known.version = progress.version - 1;

-- name: upsert_operations
-- Inserts or replaces operations; the version of their agenda has been guarded before.
insert into operations (
    agenda_id, name, state, percent, message, started_at, ended_at, result, diagnostics,
    reported_at, tries, prior, wait
)
select given_row.* from unnest($1::operation_row[]) as given_row
on conflict (agenda_id, name) do update set
    state = excluded.state,
    percent = excluded.percent,
    message = excluded.message,
    started_at = excluded.started_at,
    ended_at = excluded.ended_at,
    result = excluded.result,
    diagnostics = excluded.diagnostics,
    reported_at = excluded.reported_at,
    tries = excluded.tries,
    prior = excluded.prior,
    wait = excluded.wait;

-- name: delete_operations
-- Removes what a new attempt begins anew.
delete from operations as known
using unnest($1::text[], $2::text[]) as deleted (agenda_id, name)
where known.agenda_id = deleted.agenda_id and known.name = deleted.name;

-- name: delete_operations_of_agendas
-- Removes all operations of agendas whose summaries are made anew.
delete from operations
where agenda_id = any($1::text[]);
