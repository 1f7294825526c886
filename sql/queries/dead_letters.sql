-- name: add
-- Adds letters; one that is there already is the same.
insert into dead_letters (
    letter_id, kind, code, reason, part, at, customer_id, insight_id, agenda_id, webhook_id,
    sender_id, url, topic, partition, record_offset, record_key, value, truncated, issues
)
values (
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19
)
on conflict (letter_id) do nothing;

-- name: page
-- Letters that fit a filter, without their values, newest first, before a number.
select
    number, letter_id, kind, code, reason, part, at, customer_id, insight_id, agenda_id,
    webhook_id, sender_id, url, topic, partition, record_offset, truncated, state, settled_at,
    settled_by, settled_reason
from dead_letters
where
    number < $1
    and ($2::text[] is null or letter_id = any($2))
    and ($3::text[] is null or kind = any($3))
    and ($4::text[] is null or code = any($4))
    and ($5::text[] is null or customer_id = any($5))
    and ($6::text[] is null or insight_id = any($6))
    and ($7::text[] is null or agenda_id = any($7))
    and ($8::text[] is null or state = any($8))
    and ($9::timestamptz is null or at >= $9)
    and ($10::timestamptz is null or at < $10)
order by number desc
limit $11;

-- name: reasons
-- The newest letters that fit a filter, counted by kind and code.
select
    kind,
    code,
    count(*) as letters,
    min(at) as oldest_at,
    max(at) as newest_at,
    (array_agg(reason order by number desc))[1] as example
from (
    select number, kind, code, at, reason
    from dead_letters
    where
        ($1::text[] is null or letter_id = any($1))
        and ($2::text[] is null or kind = any($2))
        and ($3::text[] is null or code = any($3))
        and ($4::text[] is null or customer_id = any($4))
        and ($5::text[] is null or insight_id = any($5))
        and ($6::text[] is null or agenda_id = any($6))
        and ($7::text[] is null or state = any($7))
        and ($8::timestamptz is null or at >= $8)
        and ($9::timestamptz is null or at < $9)
    order by number desc
    limit $10
) as newest
group by kind, code
order by letters desc, kind, code;

-- name: find
-- One letter, whole.
select
    number, letter_id, kind, code, reason, part, at, customer_id, insight_id, agenda_id,
    webhook_id, sender_id, url, topic, partition, record_offset, record_key, value, truncated,
    issues, state, settled_at, settled_by, settled_reason
from dead_letters
where letter_id = $1;

-- name: settle
-- Settles a letter that is open.
update dead_letters
set state = $2, settled_at = now(), settled_by = $3, settled_reason = $4
where letter_id = $1 and state = 'open';

-- name: revive_webhook
-- Has a webhook that was exhausted tried anew; one that retention removed is enqueued again.
insert into webhooks (webhook_id, agenda_id, customer_id, url, body)
values ($1, $2, $3, $4, $5)
on conflict (webhook_id) do update
set exhausted_at = null, tries = 0, due_at = now(), reason = ''
where webhooks.exhausted_at is not null;

-- name: drop_webhook
-- Removes an exhausted webhook that nobody wants delivered any more.
delete from webhooks
where webhook_id = $1 and exhausted_at is not null;

-- name: excess
-- Up to which number letters are too many: those after it hold as many bytes as are kept.
select number
from (
    select
        number,
        sum(octet_length(value) + 1000) over (order by number desc) as newer_bytes
    from dead_letters
) as sized
where newer_bytes > $1
order by number desc
limit 1;

-- name: count_aged
-- Letters that are old enough, or too many.
select count(*)
from dead_letters
where at < $1 or number <= $2;

-- name: delete_aged
-- Removes some of them.
delete from dead_letters
where number in (
    select number
    from dead_letters
    where at < $1 or number <= $2
    limit $3
);
