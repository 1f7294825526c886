-- What an agenda waits for, why it is to stop, and the attempts before the present one.
alter table agendas
    add column waiting_until timestamptz,
    add column waiting_for   text,
    add column stopping      text,
    add column history       json,
    drop constraint agendas_state_known,
    add constraint agendas_state_known check (
        state in (
            'accepted', 'ready', 'waiting', 'held', 'emitted', 'running', 'retrying',
            'succeeded', 'failed', 'cancelled', 'expired', 'refused'
        )
    ) not valid;

comment on column agendas.history is 'Earlier attempts, oldest first; null where none was.';

alter table agendas validate constraint agendas_state_known;
