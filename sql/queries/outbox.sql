-- name: lock_waiting
-- The oldest rows that wait, of no customer that is paused; locked, so that no other reader
-- sends them. Rows that another reader has are skipped.
select position, agenda_id, customer_id, agenda, created_at
from pop_outbox
where refused_at is null and customer_id <> all($2::text[])
order by position
limit $1
for update skip locked;

-- name: delete_sent
-- Removes rows that were submitted.
delete from pop_outbox
where position = any($1::bigint[]);

-- name: mark_refused
-- Keeps rows that can never be submitted as they are, with the reasons, for a person.
update pop_outbox
set refused_at = now(), reason = refused.reason
from unnest($1::bigint[], $2::text[]) as refused (position, reason)
where pop_outbox.position = refused.position;
