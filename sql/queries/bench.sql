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

-- name: seed_agendas
-- Agendas that have ended, by number, of so many in all: over twenty days up to now, so that
-- retention leaves them.
insert into agendas (
    agenda_id, version, state, attempt, insight_id, customer_id, title, link_id, priority,
    body, operation_names, percent, message, puller_id, lease_ms, accepted_at, emitted_at,
    started_at, ended_at, external_id
)
select
    'bench-' || number,
    4,
    case
        when number % 50 = 0 then 'failed'
        when number % 97 = 0 then 'cancelled'
        else 'succeeded'
    end,
    1,
    'bench',
    'customer-' || number % 10,
    'Agenda number ' || number,
    'link-' || number / 1000,
    5,
    json_build_object(
        'id', 'bench-' || number, 'customer_id', 'customer-' || number % 10,
        'operations', json_build_array(json_build_object('name', 'only', 'type', 'noop'))
    ),
    '["only"]',
    100,
    '',
    'puller-' || number % 7,
    60000,
    now() - ($3::bigint - number) * (interval '20 days' / $3),
    now() - ($3 - number) * (interval '20 days' / $3),
    now() - ($3 - number) * (interval '20 days' / $3),
    now() - ($3 - number) * (interval '20 days' / $3),
    case when number % 10 = 0 then 'order-' || number end
from generate_series($1::bigint, $2::bigint) as number;

-- name: seed_letters
-- Dead letters of all kinds but webhooks, by number.
insert into dead_letters (
    letter_id, kind, code, reason, part, at, customer_id, agenda_id, topic, partition,
    record_offset, value, truncated
)
select
    lpad(to_hex(number), 20, '0'),
    case number % 3 when 0 then 'exhausted' when 1 then 'refused' else 'unreadable' end,
    case number % 3
        when 0 then 'attempts_exhausted'
        when 1 then 'submission_refused'
        else 'unreadable_record'
    end,
    'attempt 3: no such file or directory',
    'scheduler',
    now() - number % 1000000 * interval '1 second',
    'customer-' || number % 10,
    'bench-' || number,
    'pop.insight.bench',
    0,
    number,
    convert_to(repeat('x', 300), 'UTF8'),
    false
from generate_series($1::bigint, $2::bigint) as number;

-- name: seed_audit_log
-- Changes of insights, by number.
insert into audit_log (
    at, principal, request_id, action, kind, object_id, before, after
)
select
    now(), 'key:bench', 'r-' || number, 'changed', 'insight', 'object-' || number % 1000,
    '{"weight": 1}', '{"weight": 2}'
from generate_series($1::bigint, $2::bigint) as number;

-- name: seed_pullers
-- Pullers that were seen just now.
insert into pullers (
    insight_id, puller_id, first_seen_at, last_sign_at, last_claim_at, idle, last_agenda_id
)
select 'bench', 'puller-' || number, now(), now(), now(), 1, 'bench-1'
from generate_series(1, 500) as number;

-- name: analyze
-- What the planner knows of the tables.
vacuum analyze agendas, dead_letters, audit_log;
