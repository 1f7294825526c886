-- What became of an agenda's callbacks, and why a definition was changed.

-- Webhooks that a receiver answered with a 2xx, without what was sent: one row for each, removed
-- with its agenda.
create table delivered_webhooks (
    agenda_id    text        not null,
    webhook_id   text        not null,
    url          text        not null,
    tries        integer     not null,
    created_at   timestamptz not null,
    delivered_at timestamptz not null default now(),
    constraint delivered_webhooks_pkey primary key (agenda_id, webhook_id)
);

comment on column delivered_webhooks.tries is 'With the one that was answered.';

-- Of all webhooks, so that those of one agenda that are exhausted are found by it too.
drop index webhooks_by_agenda;

create index webhooks_by_agenda on webhooks (agenda_id, number);

alter table audit_log
add column reason text not null default '';

comment on column audit_log.reason is 'In the words of whoever made the change; may be empty.';
