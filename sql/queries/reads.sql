-- name: agenda
-- One agenda's summary, whole.
select
    agenda_id, version, state, attempt, insight_id, customer_id, title, link_id, priority,
    body, operation_names, percent, message, puller_id, heard_at, lease_ms, accepted_at,
    emitted_at, started_at, ended_at, issues, diagnostics,
    waiting_until, waiting_for, stopping, history
from agendas
where agenda_id = $1;

-- name: operations
-- What was reported of one agenda's operations.
select
    agenda_id, name, state, percent, message, started_at, ended_at, result, diagnostics,
    reported_at
from operations
where agenda_id = $1;

-- name: link
-- All agendas of a link, counted by state: exact, never a sample.
select state, count(*) as agendas, sum(percent::double precision) as percents
from agendas
where link_id = $1
group by state;

-- name: agenda_versions
-- A number per agenda that grows with every change.
select agenda_id, version
from agendas
where agenda_id = any($1::text[]);

-- name: link_versions
-- A number per link that grows with every change of one of its agendas.
select link_id, sum(version)::bigint as version
from agendas
where link_id = any($1::text[])
group by link_id;

-- name: ping
-- Answers while the database does.
select 1;
