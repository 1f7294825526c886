-- name: listed
-- Agendas of a source that fit, in order of acceptance. The places are filled in by the search.
select {columns}
from {source} as agendas
where {filter}
order by coalesce(accepted_at, '-infinity') {direction}, agenda_id {direction}
limit {limit};

-- name: counted
-- How many agendas of a source fit, counted up to a limit.
select count(*)
from (
    select
    from {source} as agendas
    where {filter}
    limit {limit}
) as counted;

-- name: window_end
-- Where the first of a source's windows ends that does not reach the end of the list.
select accepted_at, agenda_id
from {source} as agendas
order by coalesce(accepted_at, '-infinity') {direction}, agenda_id {direction}
limit 1;

-- name: bodies
-- Agendas as they were accepted.
select agenda_id, body
from agendas
where agenda_id = any($1::text[]);

-- name: operation_states
-- How far the operations of several agendas are.
select
    agenda_id, name, state, percent, message, started_at, ended_at, result, diagnostics,
    reported_at, tries, prior, wait
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
),
with_callbacks as (
    delete from delivered_webhooks
    using gone
    where delivered_webhooks.agenda_id = gone.agenda_id
)
select agenda_id from gone;
