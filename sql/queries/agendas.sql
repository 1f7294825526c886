-- name: find
-- Agendas that fit, without their operations and bodies, in order of acceptance. The places
-- of the filter, of the direction and of more columns are filled in by the store.
select
    agenda_id, version, state, attempt, insight_id, customer_id, title, link_id, priority,
    operation_names, percent, message, puller_id, last_heartbeat_at, lease_ms, accepted_at, emitted_at,
    started_at, ended_at, issues, diagnostics, waiting_until, waiting_for, stopping, history,
    callback_url, appended{more}
from agendas
where {filter}
order by coalesce(accepted_at, '-infinity') {direction}, agenda_id {direction}
limit {limit};

-- name: count
-- How many agendas fit.
select count(*) from agendas
where {filter};

-- name: bodies
-- Agendas as they were accepted.
select agenda_id, body
from agendas
where agenda_id = any($1::text[]);

-- name: operation_states
-- How far the operations of several agendas are.
select
    agenda_id, name, state, percent, message, started_at, ended_at, result, diagnostics,
    reported_at, tries, prior
from operations
where agenda_id = any($1::text[]);

-- name: delete
-- Removes agendas that have ended, with their operations; the ids of those removed.
with gone as (
    delete from agendas
    where agenda_id = any($1::text[]) and state = any($2::text[])
    returning agenda_id, accepted_at, ended_at
),
with_watermark as (
    update removal_watermark
    set accepted_at = youngest.at
    from (select max(coalesce(accepted_at, ended_at)) as at from gone) as youngest
    where youngest.at > coalesce(removal_watermark.accepted_at, '-infinity')
),
with_operations as (
    delete from operations
    using gone
    where operations.agenda_id = gone.agenda_id
)
select agenda_id from gone;
