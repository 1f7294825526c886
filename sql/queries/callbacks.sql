-- name: enqueue
-- Notes callbacks, in the transaction that folds the ends; one told again is the same one.
insert into callbacks (webhook_id, agenda_id, customer_id, url, body)
select *
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
on conflict (webhook_id) do nothing;

-- name: claim
-- Takes callbacks that are due, for one try each, out of the others' sight for a while. Of one
-- customer only a few, those under way included, so that none whose server hangs holds up others:
-- who has as many under way is not looked at, however much waits of it. Of one agenda the oldest.
with busy as (
    select *
    from unnest($4::text[], $5::integer[]) as busy (customer_id, under_way)
),
due as (
    select
        number,
        customer_id,
        row_number() over (partition by customer_id order by number) as place
    from (
        select number, customer_id
        from callbacks as later
        where
            given_up_at is null
            and due_at <= now()
            and not exists (
                select from busy
                where busy.customer_id = later.customer_id and busy.under_way >= $2
            )
            and not exists (
                select from callbacks as earlier
                where
                    earlier.agenda_id = later.agenda_id
                    and earlier.number < later.number
                    and earlier.given_up_at is null
            )
        order by due_at
        limit 2000
    ) as waiting
),
picked as (
    select callbacks.number
    from callbacks
    inner join due on callbacks.number = due.number
    left join busy on due.customer_id = busy.customer_id
    where
        due.place <= $2 - coalesce(busy.under_way, 0)
        and callbacks.due_at <= now()
        and callbacks.given_up_at is null
    order by due.place, callbacks.number
    limit $1
    for update of callbacks skip locked
)
update callbacks
set tries = tries + 1, due_at = now() + $3::interval
from picked
where callbacks.number = picked.number
returning
    callbacks.number, webhook_id, agenda_id, customer_id, url, body, tries, created_at;

-- name: delete_delivered
-- Forgets a callback that was received.
delete from callbacks
where number = $1;

-- name: reschedule
-- Notes why a try failed, and when the next one is due.
update callbacks
set due_at = now() + $2::interval, reason = $3
where number = $1;

-- name: mark_exhausted
-- Lets a callback be; it stays for people to see.
update callbacks
set given_up_at = now(), reason = $2
where number = $1;

-- name: backlog
-- How many wait, how many were given up, and since when the oldest waits.
select
    count(*) filter (where given_up_at is null) as waiting,
    count(*) filter (where given_up_at is not null) as given_up,
    min(created_at) filter (where given_up_at is null) as oldest
from callbacks;
