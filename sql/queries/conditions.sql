-- name: add_waits
-- Agendas that wait for conditions, in the transaction that folds their acceptance.
insert into agenda_waits (agenda_id, customer_id, on_timeout, since, due_at)
select *
from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[])
on conflict (agenda_id) do nothing;

-- name: add_conditions
-- What they wait for, in the same transaction.
insert into agenda_conditions (agenda_id, number, kind, key, due_at, only_succeeded)
select *
from
    unnest(
        $1::text[], $2::integer[], $3::text[], $4::text[], $5::timestamptz[], $6::boolean[]
    )
on conflict (agenda_id, number) do nothing;

-- name: meet_conditions
-- Marks conditions that are met now; they stay so. An agenda waits for others of its customer's.
update agenda_conditions as conditions
set met_at = $1
from agenda_waits as waits
where
    conditions.met_at is null
    and conditions.agenda_id = waits.agenda_id
    and case conditions.kind
        when 'at' then conditions.due_at <= $1
        when 'signal' then exists (
            select from signals
            where
                signals.customer_id = waits.customer_id
                and signals.name = conditions.key
                and signals.expires_at > $1
        )
        when 'agenda' then exists (
            select from agendas
            where
                agendas.agenda_id in (
                    conditions.key, conditions.key || '@' || waits.customer_id
                )
                and agendas.customer_id = waits.customer_id
                and agendas.state = any(
                    case when conditions.only_succeeded then $2::text[] else $3::text[] end
                )
        )
        when 'link' then exists (
            select from agendas
            where
                agendas.link_id = conditions.key
                and agendas.customer_id = waits.customer_id
                and agendas.agenda_id <> waits.agenda_id
        ) and not exists (
            select from agendas
            where
                agendas.link_id = conditions.key
                and agendas.customer_id = waits.customer_id
                and agendas.agenda_id <> waits.agenda_id
                and agendas.state <> all(
                    case when conditions.only_succeeded then $2::text[] else $3::text[] end
                )
        )
        else false
    end;

-- name: decided_waits
-- Agendas that are held, and whose conditions are all met or whose time is over; those that were
-- commanded lately are left out.
select
    waits.agenda_id,
    agendas.insight_id,
    agendas.attempt,
    waits.on_timeout,
    waits.since,
    unmet.conditions as unmet
from agenda_waits as waits
inner join agendas on waits.agenda_id = agendas.agenda_id
cross join lateral (
    select string_agg(conditions.kind || ' ' || conditions.key, ', ') as conditions
    from agenda_conditions as conditions
    where conditions.agenda_id = waits.agenda_id and conditions.met_at is null
) as unmet
where
    agendas.state = 'held'
    and (waits.commanded_at is null or waits.commanded_at < $1::timestamptz - interval '5 seconds')
    and (unmet.conditions is null or waits.due_at <= $1)
order by waits.agenda_id
limit $2;

-- name: mark_commanded
-- Records when agendas were commanded.
update agenda_waits
set commanded_at = $2
where agenda_id = any($1::text[]);

-- name: forget_waits
-- Removes what waits no more: agendas that went on, or have ended.
delete from agenda_waits as waits
using agendas
where
    waits.agenda_id = agendas.agenda_id
    and (
        agendas.state = any($1::text[])
        or (waits.commanded_at is not null and agendas.state <> 'held')
    );
