-- name: enqueue
-- Enqueues webhooks, in the transaction that folds the ends; one enqueued again is the same one.
insert into webhooks (webhook_id, agenda_id, customer_id, url, body)
select *
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
on conflict (webhook_id) do nothing;

-- name: claim
-- Claims webhooks that are due, for one try each, hidden from other senders for a while. Of one
-- customer only a few, those in flight included, so that none whose server hangs holds up others:
-- who has as many in flight is not looked at, however much waits of it. Of one agenda the oldest.
with busy as (
    select *
    from unnest($4::text[], $5::integer[]) as busy (customer_id, in_flight)
),
due as (
    select
        number,
        customer_id,
        row_number() over (partition by customer_id order by number) as position
    from (
        select number, customer_id
        from webhooks as later
        where
            exhausted_at is null
            and due_at <= now()
            and not exists (
                select from busy
                where busy.customer_id = later.customer_id and busy.in_flight >= $2
            )
            and not exists (
                select from webhooks as earlier
                where
                    earlier.agenda_id = later.agenda_id
                    and earlier.number < later.number
                    and earlier.exhausted_at is null
            )
        order by due_at
        limit 2000
    ) as waiting
),
picked as (
    select webhooks.number
    from webhooks
    inner join due on webhooks.number = due.number
    left join busy on due.customer_id = busy.customer_id
    where
        due.position <= $2 - coalesce(busy.in_flight, 0)
        and webhooks.due_at <= now()
        and webhooks.exhausted_at is null
    order by due.position, webhooks.number
    limit $1
    for update of webhooks skip locked
)
update webhooks
set tries = tries + 1, due_at = now() + $3::interval
from picked
where webhooks.number = picked.number
returning
    webhooks.number, webhook_id, agenda_id, customer_id, url, body, tries, created_at;

-- name: move_delivered
-- Takes a webhook that was delivered out of the outbox, and keeps that it was for as long as its
-- agenda is kept. One that was owed again, and delivered again, is one.
with delivered as (
    delete from webhooks
    where number = $1
    returning agenda_id, webhook_id, url, tries, created_at
)
insert into delivered_webhooks (agenda_id, webhook_id, url, tries, created_at)
select agenda_id, webhook_id, url, tries, created_at
from delivered
where exists (select from agendas where agendas.agenda_id = delivered.agenda_id)
on conflict (agenda_id, webhook_id) do update set
    url = excluded.url,
    tries = excluded.tries,
    created_at = excluded.created_at,
    delivered_at = excluded.delivered_at;

-- name: reschedule
-- Records why a try failed, and when the next one is due.
update webhooks
set due_at = now() + $2::interval, reason = $3
where number = $1;

-- name: mark_exhausted
-- Gives up a webhook; it stays for people to see.
update webhooks
set exhausted_at = now(), reason = $2
where number = $1;

-- name: backlog
-- How many wait, how many are exhausted, and since when the oldest waits.
select
    count(*) filter (where exhausted_at is null) as waiting,
    count(*) filter (where exhausted_at is not null) as exhausted,
    min(created_at) filter (where exhausted_at is null) as oldest
from webhooks;

-- name: oldest_waiting
-- Since when the oldest waits; numbers rise with time.
select created_at
from webhooks
where exhausted_at is null
order by number
limit 1;
