-- name: record
-- Signs of life of pullers; one that is older than what is known changes nothing.
insert into pullers as known (
    insight_id, puller_id, first_seen_at, last_sign_at, last_claim_at, idle, last_agenda_id
)
select
    insight_id, puller_id, at, at, case when idle is not null then at end, idle, agenda_id
from unnest($1::text[], $2::text[], $3::timestamptz[], $4::integer[], $5::text[])
    as sign (insight_id, puller_id, at, idle, agenda_id)
on conflict (insight_id, puller_id) do update
set
    last_sign_at = excluded.last_sign_at,
    last_claim_at = coalesce(excluded.last_claim_at, known.last_claim_at),
    idle = coalesce(excluded.idle, known.idle),
    last_agenda_id = excluded.last_agenda_id
where known.last_sign_at < excluded.last_sign_at;

-- name: page
-- Pullers of all insights or of one, after a place.
select
    insight_id, puller_id, first_seen_at, last_sign_at, last_claim_at, idle, last_agenda_id
from pullers
where ($1::text is null or insight_id = $1) and (insight_id, puller_id) > ($2, $3)
order by insight_id, puller_id
limit $4;

-- name: count_silent
-- Pullers that gave no sign for long.
select count(*)
from pullers
where last_sign_at < $1;

-- name: delete_silent
-- Forgets pullers that gave no sign for long.
delete from pullers
where last_sign_at < $1;
