-- Operations that handlers appended, and what earlier tries and attempts left of operations.
alter table agendas add column appended json;

alter table operations
    add column tries integer not null default 1,
    add column prior json;

comment on column agendas.appended is 'Operations besides those it came with; null for none.';
comment on column operations.prior is 'How far an earlier attempt was; null if it was not.';
