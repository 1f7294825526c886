-- name: drop_floor
-- What an earlier benchmark may have left.
drop table if exists bench_floor;

-- name: make_floor
-- Where the floor of a benchmark writes: the least that a summary could be.
create table bench_floor (
    id       text        not null primary key,
    state    text        not null,
    body     text        not null,
    ended_at timestamptz not null
);

-- name: upsert_floor
-- All rows of a batch in one statement, as the rollup does it.
insert into bench_floor as kept (id, state, body, ended_at)
select
    given.id,
    'succeeded',
    given.body,
    now()
from unnest($1::text[], $2::text[]) as given (id, body)
on conflict (id) do update
set
    state = excluded.state,
    body = excluded.body,
    ended_at = excluded.ended_at;

-- name: states_of_run
-- How many agendas of a benchmark are in each state.
select
    state,
    count(*) as agendas
from agendas
where starts_with(agenda_id, $1)
group by state;

-- name: ended_among
-- Those of the given agendas whose summary says that they have ended.
select agenda_id
from agendas
where agenda_id = any($1::text[]) and ended_at is not null;
