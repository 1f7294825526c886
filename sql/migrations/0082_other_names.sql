-- What agendas are looked for by, besides their ids and links: what their submitters call them, and
-- the request they came from. They are written once, with the body they are told in; longer ones
-- than an index takes are left out. An earlier text of this did all of it in one transaction, which
-- nobody could read or write the table beside.
-- supersedes 57dc496bc541d7d15147042dfef9e9e686b3f6ee9331b04849b4cb849dd9c4b6
alter table agendas
add column if not exists external_id text,
add column if not exists correlation_id text;

-- step
do $$
declare
    place text := '';
    upto text;
begin
    loop
        select max(lot.agenda_id) into upto
        from (
            select agenda_id from agendas where agenda_id > place order by agenda_id limit 1000
        ) as lot;
        exit when upto is null;
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
                where
                    agenda_id > place
                    and agenda_id <= upto
                    and body is not null
                    and coalesce(external_id, correlation_id) is null
            ) as sound
        )

        update agendas
        set external_id = told.external_id, correlation_id = told.correlation_id
        from told
        where
            agendas.agenda_id = told.agenda_id
            and length(coalesce(told.external_id, '')) <= 500
            and coalesce(told.external_id, told.correlation_id) is not null;
        commit;
        place := upto;
    end loop;
end
$$;

-- step
drop index concurrently if exists agendas_by_external_id;

-- step
create index concurrently agendas_by_external_id on agendas (external_id)
where external_id is not null;

-- step
drop index concurrently if exists agendas_by_correlation;

-- step
create index concurrently agendas_by_correlation on agendas (correlation_id)
where correlation_id is not null;

-- step
drop type if exists agenda_kept;

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
    appended        json,
    external_id     text,
    correlation_id  text
);
