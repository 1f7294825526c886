-- Rows as the rollup gives them to a statement: one array of rows instead of an array for each
-- column, which costs the driver and the server half as much. The order of the columns counts.
-- A statement that gives others needs a type of its own: these may be in use while the schema is
-- brought up to date.
create type agenda_given as (
    agenda_id       text,
    version         bigint,
    state           text,
    attempt         integer,
    insight_id      text,
    customer_id     text,
    title           text,
    link_id         text,
    priority        integer,
    body            json,
    operation_names json,
    percent         real,
    message         text,
    puller_id       text,
    last_heartbeat_at        timestamptz,
    lease_ms        integer,
    accepted_at     timestamptz,
    emitted_at      timestamptz,
    started_at      timestamptz,
    ended_at        timestamptz,
    issues          json,
    diagnostics     json,
    waiting_until   timestamptz,
    waiting_for     text,
    stopping        text,
    history         json,
    callback_url    text,
    appended        json
);

create type agenda_moved as (
    agenda_id     text,
    version       bigint,
    state         text,
    attempt       integer,
    priority      integer,
    percent       real,
    message       text,
    puller_id     text,
    last_heartbeat_at      timestamptz,
    lease_ms      integer,
    emitted_at    timestamptz,
    started_at    timestamptz,
    ended_at      timestamptz,
    diagnostics   json,
    waiting_until timestamptz,
    waiting_for   text,
    stopping      text,
    history       json,
    appended      json
);

create type operation_given as (
    agenda_id   text,
    name        text,
    state       text,
    percent     double precision,
    message     text,
    started_at  timestamptz,
    ended_at    timestamptz,
    result      json,
    diagnostics json,
    reported_at timestamptz,
    tries       integer,
    prior       json
);
