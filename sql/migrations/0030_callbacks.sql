-- Callbacks that are owed to customers: written by the transaction that ends the agenda.
alter table agendas
    add column callback_url text;

create table callbacks (
    number      bigint      not null generated always as identity,
    webhook_id text        not null,
    agenda_id   text        not null,
    customer_id text        not null,
    url         text        not null,
    body        text        not null,
    tries       integer     not null default 0,
    due_at      timestamptz not null default now(),
    reason      text        not null default '',
    given_up_at timestamptz,
    created_at  timestamptz not null default now(),
    constraint callbacks_pkey primary key (number),
    constraint callbacks_id_unique unique (webhook_id)
);

comment on table callbacks is 'Deleted once delivered; what is given up stays until retention.';
comment on column callbacks.body is 'The very bytes that are signed and sent.';

create index callbacks_due on callbacks (due_at) where given_up_at is null;
create index callbacks_by_agenda on callbacks (agenda_id) where given_up_at is null;
