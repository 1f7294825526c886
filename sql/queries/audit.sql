-- name: record
-- One change.
insert into audit_log (
    principal, customer_id, request_id, action, kind, object_id, before, after, reason
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: list
-- A page of changes, newest first; a null asks for all.
select
    entry_id, at, principal, customer_id, request_id, action, kind, object_id, before, after,
    reason
from audit_log
where
    entry_id < $1
    and ($2::text is null or kind = $2)
    and ($3::text is null or object_id = $3)
    and ($4::text is null or principal = $4)
order by entry_id desc
limit $5;

-- name: count_recent
-- How many changes a customer made in the last hour, counted up to a limit.
select count(*)
from (
    select 1
    from audit_log
    where customer_id = $1 and at > now() - interval '1 hour'
    limit $2
) as recent;
