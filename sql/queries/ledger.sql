-- name: states
-- Where the given agendas stand.
select agenda_id, state, attempt, insight_id, ended_at is not null as has_ended
from agendas
where agenda_id = any($1::text[]);


-- name: open_page
-- Agendas that have not ended and that changed nothing for a while, by id.
select
    agenda_id, insight_id, state, attempt, version
from agendas
where
    agenda_id > $1
    and state = any($2::text[])
    and updated_at < now() - $3::interval
order by agenda_id
limit $4;

-- name: recently_ended
-- Agendas that have ended, not just now and not long ago: a sample, of the latest.
select
    agenda_id, insight_id, state, attempt, version
from agendas
where
    state = any($1::text[])
    and coalesce(accepted_at, '-infinity') > now() - interval '1 day'
    and updated_at < now() - $2::interval
order by coalesce(accepted_at, '-infinity') desc
limit $3;

-- name: count_recently_changed
-- How many agendas have changed so lately that they are not looked at yet.
select count(*)
from agendas
where state = any($1::text[]) and updated_at >= now() - $2::interval;

-- name: rows_of
-- The same agendas once more.
select
    agenda_id, insight_id, state, attempt, version
from agendas
where agenda_id = any($1::text[]);

-- name: accepted_at
-- When agendas were accepted, of those of which that is known.
select agenda_id, accepted_at
from agendas
where agenda_id = any($1::text[]) and accepted_at is not null;

-- name: bodies
-- What is needed to place agendas again.
select agenda_id, body, accepted_at
from agendas
where agenda_id = any($1::text[]) and body is not null and accepted_at is not null;
