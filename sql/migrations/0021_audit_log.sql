-- Who changed what, when; written in the transaction of the change itself.
create table audit_log (
    entry_id    bigint      generated always as identity,
    at          timestamptz not null default now(),
    principal   text        not null,
    customer_id text,
    request_id  text        not null,
    action      text        not null,
    kind        text        not null,
    object_id   text        not null,
    before      json,
    after       json,
    constraint audit_log_pkey primary key (entry_id)
);

comment on column audit_log.customer_id is 'Whom the principal speaks for; null is an operator.';

create index audit_log_by_object on audit_log (kind, object_id, entry_id);
create index audit_log_by_principal on audit_log (principal, entry_id);

-- Append-only, for this code and for a slip of the hand alike. An owner of the table who means
-- it can drop the trigger, which a log of the database itself will show.
create function audit_log_is_append_only() returns trigger language plpgsql as $$
begin
    raise exception 'audit_log is append-only';
end
$$;

create trigger audit_log_stays before update or delete or truncate on audit_log
    for each statement execute function audit_log_is_append_only();
