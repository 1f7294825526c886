-- name: page
-- The next agendas by acceptance, with whether each has ended long enough ago. An agenda ends
-- after its acceptance, so none accepted after the latest instant can be among them.
select
    agenda_id,
    coalesce(accepted_at, '-infinity') as accepted_at,
    agendas.state,
    ended_at < aged.before as is_aged
from agendas
left join unnest($1::text[], $2::timestamptz[]) as aged (state, before)
    on agendas.state = aged.state
where
    (coalesce(accepted_at, '-infinity'), agenda_id) > ($3::timestamptz, $4::text)
    and coalesce(accepted_at, '-infinity') < $5::timestamptz
order by coalesce(accepted_at, '-infinity'), agenda_id
limit $6;

-- name: delete_aged
-- Removes agendas that are still as aged as they were found, with their operations. One that
-- runs again has another state by now, and stays.
with gone as (
    delete from agendas
    using unnest($1::text[], $2::timestamptz[]) as aged (state, before)
    where
        agendas.agenda_id = any($3::text[])
        and agendas.state = aged.state
        and agendas.ended_at < aged.before
    returning agendas.agenda_id, agendas.state, agendas.accepted_at, agendas.ended_at
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
select state, count(*) as agendas
from gone
group by state;

-- name: count_exhausted_webhooks
-- Webhooks that were exhausted long enough ago.
select count(*)
from webhooks
where exhausted_at < $1;

-- name: delete_exhausted_webhooks
-- Removes some of them.
delete from webhooks
where number in (
    select number
    from webhooks
    where exhausted_at < $1
    limit $2
);
