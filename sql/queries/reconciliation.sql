-- name: try_lock
-- Whether this session is the one that reconciles; it is until it unlocks or ends.
select pg_try_advisory_lock($1);

-- name: unlock
-- Lets another session.
select pg_advisory_unlock($1);

-- name: scan_positions
-- How far each scan has come.
select scan, accepted_at, agenda_id
from reconciliation_scans;

-- name: save_scan_position
-- A scan has come so far.
insert into reconciliation_scans (scan, accepted_at, agenda_id)
values ($1, $2, $3)
on conflict (scan) do update set accepted_at = excluded.accepted_at, agenda_id = excluded.agenda_id;

-- name: scan_open
-- Lists those of the next agendas, by acceptance, that have not ended; how many were passed,
-- and which was the last.
with page as (
    select agenda_id, coalesce(accepted_at, '-infinity') as accepted_at, state
    from agendas
    where
        (coalesce(accepted_at, '-infinity'), agenda_id) > ($1::timestamptz, $2::text)
        and coalesce(accepted_at, '-infinity') < $3::timestamptz
    order by coalesce(accepted_at, '-infinity'), agenda_id
    limit $4
),
listed as (
    insert into open_agendas (agenda_id)
    select agenda_id from page where state = any($5::text[])
    on conflict do nothing
)
select accepted_at, agenda_id, (select count(*) from page) as passed
from page
order by accepted_at desc, agenda_id desc
limit 1;

-- name: open_agendas_page
-- The next agendas of the list, as they are now.
select
    open_agendas.agenda_id,
    agendas.insight_id,
    agendas.state,
    agendas.attempt,
    agendas.version,
    coalesce(agendas.state = any($3::text[]), false) as is_open,
    coalesce(agendas.updated_at < now() - $4::interval, false) as is_stale
from open_agendas
left join agendas on agendas.agenda_id = open_agendas.agenda_id
where open_agendas.agenda_id > $1
order by open_agendas.agenda_id
limit $2;

-- name: delete_open_agendas
-- Takes agendas that have ended, or are gone, off the list.
delete from open_agendas
where agenda_id = any($1::text[]);

-- name: now
-- The clock by which acceptance is compared.
select now();
