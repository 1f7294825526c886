-- Customers, pools, insights and templates: the truth, of which pop.definitions is a copy.

-- JSON is kept as text (json, not jsonb): the order in which somebody wrote a template stays.
create table definitions (
    kind       text             not null,
    id         text collate "C" not null,
    version    bigint           not null,
    body       json             not null,
    refers_to  text[]           not null,
    owner_id   text,
    visibility text             not null,
    allowed    text[]           not null,
    created_at timestamptz      not null default now(),
    updated_at timestamptz      not null default now(),
    constraint definitions_pkey primary key (kind, id),
    constraint definitions_kind_known check (
        kind in ('customer', 'insight', 'pool', 'template')
    ),
    constraint definitions_visibility_known check (visibility in ('owner', 'allowed', 'global'))
);

comment on column definitions.body is 'Fields left at their defaults are not in it.';
comment on column definitions.refers_to is 'kind/id of what may not be deleted while this is.';
comment on column definitions.allowed is 'Ids of customers in lower case.';

create index definitions_by_reference on definitions using gin (refers_to);

-- Every version there ever was; those not yet published are the outbox. A number grows in the
-- order of commits, for writers take turns.
create table definition_versions (
    number       bigint           not null generated always as identity,
    kind         text             not null,
    id           text collate "C" not null,
    version      bigint           not null,
    body         json,
    changed_at   timestamptz      not null default now(),
    published_at timestamptz,
    constraint definition_versions_pkey primary key (kind, id, version)
);

comment on column definition_versions.body is 'Null: it was deleted.';

create index definition_versions_unpublished on definition_versions (number)
where published_at is null;
