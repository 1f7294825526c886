-- What the lifecycle of every agenda adds up to, and how far it has been read.

-- One row per agenda, updated some three times in its life: half a page left free keeps those
-- updates on the row's own page, where they touch no index. JSON is kept as text (json, not
-- jsonb): it is handed on as it came, and may hold \u0000.
create table agendas (
    agenda_id       text        not null,
    version         bigint      not null,
    state           text        not null,
    attempt         integer     not null,
    insight_id      text        not null,
    customer_id     text        not null,
    title           text        not null,
    link_id         text,
    priority        integer     not null,
    body            json,
    operation_names json        not null,
    percent         real        not null,
    message         text        not null,
    puller_id       text        not null,
    last_heartbeat_at        timestamptz,
    lease_ms        integer     not null,
    accepted_at     timestamptz,
    emitted_at      timestamptz,
    started_at      timestamptz,
    ended_at        timestamptz,
    issues          json,
    diagnostics     json,
    updated_at      timestamptz not null default now(),
    constraint agendas_pkey primary key (agenda_id),
    constraint agendas_state_known check (
        state in ('accepted', 'ready', 'emitted', 'running', 'succeeded', 'failed', 'refused')
    ),
    constraint agendas_percent_bounded check (percent between 0 and 100)
) with (fillfactor = 50);

comment on column agendas.version is 'Grows by one with every change; guards every update.';
comment on column agendas.body is 'The agenda as accepted; null before that.';
comment on column agendas.operation_names is 'All operations, in the order of the agenda.';

create index agendas_by_link on agendas (link_id) where link_id is not null;

-- Only operations that were reported; any other is waiting. No foreign key: both tables are
-- written by the same statement-pair, and the check would cost as much as the insert.
create table operations (
    agenda_id   text             not null,
    name        text             not null,
    state       text             not null,
    percent     double precision not null,
    message     text             not null,
    started_at  timestamptz,
    ended_at    timestamptz,
    result      json,
    diagnostics json,
    reported_at timestamptz,
    constraint operations_pkey primary key (agenda_id, name),
    constraint operations_state_known check (
        state in ('waiting', 'running', 'succeeded', 'failed')
    )
) with (fillfactor = 80);

-- Written in the transaction that folds the events before them, so each is folded once.
create table consumed_offsets (
    topic       text    not null,
    partition   integer not null,
    next_offset bigint  not null,
    constraint consumed_offsets_pkey primary key (topic, partition)
) with (fillfactor = 50);
