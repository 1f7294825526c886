-- name: agenda
-- One agenda's summary, whole.
select
    agenda_id, version, state, attempt, insight_id, customer_id, title, link_id, priority,
    body, operation_names, percent, message, puller_id, last_heartbeat_at, lease_ms, accepted_at,
    emitted_at, started_at, ended_at, issues, diagnostics,
    waiting_until, waiting_for, stopping, history, callback_url, callback_format, appended
from agendas
where agenda_id = $1;

-- name: attempt_status
-- How far one agenda is.
select attempt, state
from agendas
where agenda_id = $1;

-- name: operations
-- What was reported of one agenda's operations.
select
    agenda_id, name, state, percent, message, started_at, ended_at, result, diagnostics,
    reported_at, tries, prior, wait
from operations
where agenda_id = $1;

-- name: link
-- The agendas of a link, all or one customer's, counted by state: exact, never a sample.
select state, count(*) as agendas, sum(percent::double precision) as percents
from agendas
where link_id = $1 and ($2::text is null or customer_id = $2)
group by state;

-- name: agenda_owners
-- Whose the agendas are.
select agenda_id, customer_id
from agendas
where agenda_id = any($1::text[]);

-- name: agenda_ids_of
-- Agendas that have this id, or whose customers call them so.
select agenda_id from agendas
where agenda_id = $1
union all
(
    select agenda_id from agendas
    where agenda_id like '%@%' and split_part(agenda_id, '@', 1) = $1
    limit 2
);

-- name: accepted_bodies
-- Agendas as they were accepted; one that was refused was not.
select agenda_id, customer_id, body
from agendas
where agenda_id = any($1::text[]) and body is not null and state <> 'refused';

-- name: freed_ids
-- Which of some agendas were refused, and when the youngest that was ever removed was accepted.
select
    array(
        select agenda_id from agendas
        where agenda_id = any($1::text[]) and state = 'refused'
    ) as refused,
    (select accepted_at from removal_watermark) as deleted_until;

-- name: agenda_versions
-- A number per agenda that grows with every change.
select agenda_id, version
from agendas
where agenda_id = any($1::text[]);

-- name: link_versions
-- A number per link, or per customer's part of one, that grows with every change in it.
select part.link_id, part.customer_id, sum(agendas.version)::bigint as version
from unnest($1::text[], $2::text[]) as part (link_id, customer_id)
join agendas
    on agendas.link_id = part.link_id
    and (part.customer_id is null or agendas.customer_id = part.customer_id)
group by part.link_id, part.customer_id;

-- name: ping
-- Answers while the database does.
select 1;

-- name: callbacks
-- The webhooks of an agenda, newest first: those that wait or are exhausted, and those delivered.
select webhook_id, url, state, tries, created_at, due_at, ended_at, reason
from (
    select
        webhook_id,
        url,
        case when exhausted_at is null then 'waiting' else 'exhausted' end as state,
        tries,
        created_at,
        case when exhausted_at is null then due_at end as due_at,
        exhausted_at as ended_at,
        reason
    from webhooks
    where agenda_id = $1
    union all
    select
        webhook_id,
        url,
        'delivered' as state,
        tries,
        created_at,
        null as due_at,
        delivered_at as ended_at,
        '' as reason
    from delivered_webhooks
    where agenda_id = $1
) as known
order by created_at desc, webhook_id asc
limit $2;
