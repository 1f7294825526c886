-- The outbox of a service, in the service's own database; `pop-stream outbox` empties it.
-- Add it to the service's migrations.

create table if not exists pop_outbox (
    position bigint generated always as identity primary key,
    agenda_id text not null,
    customer_id text not null,
    agenda json not null,
    created_at timestamptz not null default now(),
    refused_at timestamptz,
    reason text
);

comment on table pop_outbox is
    'Agendas that are committed and not yet submitted; with refused_at, that never will be.';

create index if not exists pop_outbox_waiting on pop_outbox (position)
    where refused_at is null;

-- Wakes `pop-stream outbox` at each commit. PostgreSQL serialises commits that notify: leave
-- the trigger out where thousands are committed a second; the outbox is looked at every second.
create or replace function pop_outbox_notify() returns trigger language plpgsql as $$
begin
    notify pop_outbox;
    return null;
end
$$;

create or replace trigger pop_outbox_notify after insert on pop_outbox
    for each statement execute function pop_outbox_notify();
