-- What agendas are looked for by, besides their ids and links: what their submitters call them, and
-- the request they came from. They are written once, with the body they are told in; longer ones
-- than an index takes are left out.
alter table agendas
add column external_id text,
add column correlation_id text;

-- What was refused may hold texts that no JSON function takes.
with told as (
    select
        agenda_id,
        case
            when json_typeof(body -> 'params' -> 'external_id') = 'string'
                then body -> 'params' ->> 'external_id'
            when
                body -> 'params' -> 'external_id' is null
                and json_typeof(body -> 'params' -> 'externalId') = 'string'
                then body -> 'params' ->> 'externalId'
        end as external_id,
        body -> 'trace' ->> 'correlation_id' as correlation_id
    from (
        select
            agenda_id,
            case when pg_input_is_valid(body::text, 'jsonb') then body end as body
        from agendas
        where body is not null
    ) as sound
)

update agendas
set external_id = told.external_id, correlation_id = told.correlation_id
from told
where
    agendas.agenda_id = told.agenda_id
    and length(coalesce(told.external_id, '')) <= 500
    and coalesce(told.external_id, told.correlation_id) is not null;

create index agendas_by_external_id on agendas (external_id) where external_id is not null;

create index agendas_by_correlation on agendas (correlation_id)
where correlation_id is not null;

create type agenda_kept as (
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
    heard_at        timestamptz,
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
    appended        json,
    external_id     text,
    correlation_id  text
);
