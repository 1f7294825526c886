-- Lists of agendas by more of what is known of them, each in the order of lists, so that a page
-- costs what it shows and not what there is.

-- The state of agendas in one that needs a look; null in all that most agendas go through. An
-- update that leaves it null touches no index, so agendas that succeed are updated as cheaply as
-- before. Adding it writes the table anew.
alter table agendas
add column template_id text,
add column notable_state text generated always as (
    case
        when
            state in (
                'waiting', 'held', 'retrying', 'failed', 'cancelled', 'expired', 'refused'
            )
            then state
    end
) stored;

comment on column agendas.template_id is 'Of the template it was made from; null for none.';

create type described_agenda_row as (
    agenda_id         text,
    version           bigint,
    state             text,
    attempt           integer,
    insight_id        text,
    customer_id       text,
    title             text,
    link_id           text,
    priority          integer,
    body              json,
    operation_names   json,
    percent           real,
    message           text,
    puller_id         text,
    last_heartbeat_at timestamptz,
    lease_ms          integer,
    accepted_at       timestamptz,
    emitted_at        timestamptz,
    started_at        timestamptz,
    ended_at          timestamptz,
    issues            json,
    diagnostics       json,
    waiting_until     timestamptz,
    waiting_for       text,
    stopping          text,
    history           json,
    callback_url      text,
    callback_format   text,
    appended          json,
    external_id       text,
    correlation_id    text,
    template_id       text,
    accounted_attempt integer
);

create index agendas_by_notable_state on agendas (
    notable_state, (coalesce(accepted_at, '-infinity')), agenda_id
) where notable_state is not null;

create index agendas_by_insight on agendas (
    insight_id, (coalesce(accepted_at, '-infinity')), agenda_id
);

create index agendas_by_template on agendas (
    template_id, (coalesce(accepted_at, '-infinity')), agenda_id
) where template_id is not null;

create index agendas_by_link_and_acceptance on agendas (
    link_id, (coalesce(accepted_at, '-infinity')), agenda_id
) where link_id is not null;

drop index agendas_by_link;

-- Whether a payload of an agenda's operations has one of some values at a path. A body that is
-- large, or that holds text that the database cannot, has none.
create function payload_has(body json, path text [], wanted text []) returns boolean
language plpgsql immutable parallel safe as $$
begin
    if body is null or pg_column_size(body) > 65536 then
        return false;
    end if;
    return exists (
        select from json_array_elements(body -> 'operations') as operation (content)
        where operation.content -> 'payload' #>> path = any(wanted)
    );
exception
    when untranslatable_character or invalid_text_representation
        or invalid_parameter_value or data_exception then
        return false;
end
$$;
