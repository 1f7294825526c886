-- The whole schema: summaries of agendas, definitions with their outbox, keys, the audit log,
-- webhooks, and how far reconciliation and retention have come.

-- What the lifecycle of every agenda adds up to. One row per agenda, updated some three times in
-- its life: half a page left free keeps those updates on the row's own page, where they touch no
-- index. JSON is kept as text (json, not jsonb): it is handed on as it came, and may hold \u0000.
create table agendas (
    agenda_id         text        not null,
    version           bigint      not null,
    state             text        not null,
    attempt           integer     not null,
    insight_id        text        not null,
    customer_id       text        not null,
    title             text        not null,
    link_id           text,
    priority          integer     not null,
    body              json,
    operation_names   json        not null,
    appended          json,
    percent           real        not null,
    message           text        not null,
    puller_id         text        not null,
    last_heartbeat_at timestamptz,
    lease_ms          integer     not null,
    accepted_at       timestamptz,
    emitted_at        timestamptz,
    started_at        timestamptz,
    ended_at          timestamptz,
    waiting_until     timestamptz,
    waiting_for       text,
    stopping          text,
    issues            json,
    diagnostics       json,
    history           json,
    callback_url      text,
    callback_format   text        not null default 'json',
    external_id       text,
    correlation_id    text,
    accounted_attempt integer     not null default 0,
    updated_at        timestamptz not null default now(),
    constraint agendas_pkey primary key (agenda_id),
    constraint agendas_state_known check (
        state in (
            'accepted', 'ready', 'waiting', 'held', 'emitted', 'running', 'retrying',
            'succeeded', 'failed', 'cancelled', 'expired', 'refused'
        )
    ),
    constraint agendas_percent_bounded check (percent between 0 and 100)
) with (fillfactor = 50);

comment on column agendas.version is 'Grows by one with every change; guards every update.';
comment on column agendas.body is 'The agenda as accepted; null before that.';
comment on column agendas.operation_names is 'All operations, in the order of the agenda.';
comment on column agendas.appended is 'Operations besides those it came with; null for none.';
comment on column agendas.accounted_attempt is 'The last one that the table stats has counted.';
comment on column agendas.history is 'Earlier attempts, oldest first; null where none was.';

create index agendas_by_link on agendas (link_id) where link_id is not null;

-- Lists of agendas, newest first, of all customers or of one. Both keys are written once, when
-- an agenda is accepted, so later updates of its row touch no index.
create index agendas_by_acceptance on agendas (
    (coalesce(accepted_at, '-infinity')), agenda_id
);

create index agendas_by_customer on agendas (
    customer_id, (coalesce(accepted_at, '-infinity')), agenda_id
);

-- Operators look for what customers call their agendas: the part of the id before the @. Ids that
-- customers did not choose have none, and take no place here.
create index agendas_by_own_id on agendas (split_part(agenda_id, '@', 1))
where agenda_id like '%@%';

-- What submitters call agendas, and the request they came from: written once, with the body.
-- Texts longer than an index takes are left out.
create index agendas_by_external_id on agendas (external_id)
where external_id is not null;

create index agendas_by_correlation on agendas (correlation_id)
where correlation_id is not null;

-- Only operations that were reported; any other is waiting. No foreign key: both tables are
-- written by the same statement-pair, and the check would cost as much as the insert.
create table operations (
    agenda_id   text             not null,
    name        text             not null,
    state       text             not null,
    percent     double precision not null,
    message     text             not null,
    started_at  timestamptz,
    ended_at    timestamptz,
    result      json,
    diagnostics json,
    reported_at timestamptz,
    tries       integer          not null default 1,
    prior       json,
    wait        json,
    constraint operations_pkey primary key (agenda_id, name),
    constraint operations_state_known check (
        state in ('waiting', 'running', 'succeeded', 'failed')
    )
) with (fillfactor = 80);

comment on column operations.prior is 'How far an earlier attempt was; null if it was not.';
comment on column operations.wait is 'What it waits for without a runner; null if for nothing.';

-- Operations that wait without a runner: what ends their wait is looked for here.
create index operations_that_wait on operations (agenda_id, name)
where wait is not null and state = 'waiting';

-- Signals, kept for a while so that one given before it is waited for is not lost.
create table signals (
    customer_id text        not null,
    name        text        not null,
    payload     json,
    given_at    timestamptz not null,
    given_by    text        not null,
    expires_at  timestamptz not null,
    constraint signals_pkey primary key (customer_id, name)
);

create index signals_by_expiry on signals (expires_at);

-- How operations ended that were handed over: one row for each, of its last hand-over that has
-- ended. What it is completed with twice is compared with it, for as long as its agenda is kept.
create table completions (
    agenda_id    text        not null,
    operation    text        not null,
    token        text        not null,
    attempt      integer     not null,
    outcome      text        not null,
    result       json,
    reason       text        not null,
    is_retryable boolean     not null,
    completed_at timestamptz not null,
    constraint completions_pkey primary key (agenda_id, operation),
    constraint completions_of foreign key (agenda_id)
    references agendas (agenda_id) on delete cascade,
    constraint completions_outcome_known check (
        outcome in ('succeeded', 'failed', 'timed_out')
    )
);

comment on column completions.token is 'The digest of the token; the token is not kept.';

-- Agendas that are held until conditions are met, until they have gone on or ended.
create table agenda_waits (
    agenda_id    text        not null,
    customer_id  text        not null,
    on_timeout   text        not null,
    since        timestamptz not null,
    due_at       timestamptz not null,
    commanded_at timestamptz,
    constraint agenda_waits_pkey primary key (agenda_id),
    constraint agenda_waits_of foreign key (agenda_id)
    references agendas (agenda_id) on delete cascade
);

create table agenda_conditions (
    agenda_id      text    not null,
    number         integer not null,
    kind           text    not null,
    key            text    not null,
    due_at         timestamptz,
    only_succeeded boolean not null,
    met_at         timestamptz,
    constraint agenda_conditions_pkey primary key (agenda_id, number),
    constraint agenda_conditions_of foreign key (agenda_id)
    references agenda_waits (agenda_id) on delete cascade
);

create index unmet_conditions on agenda_conditions (agenda_id) where met_at is null;

-- Written in the transaction that folds the events before them, so each is folded once.
create table consumed_offsets (
    topic       text    not null,
    partition   integer not null,
    next_offset bigint  not null,
    constraint consumed_offsets_pkey primary key (topic, partition)
) with (fillfactor = 50);

-- Rows as the rollup gives them to a statement: one array of rows instead of an array for each
-- column, which costs the driver and the server half as much. The order of the columns counts.
-- A statement that gives others needs a type of its own: these may be in use while the schema is
-- brought up to date.
create type agenda_row as (
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
    correlation_id    text
);

create type agenda_progress_row as (
    agenda_id         text,
    version           bigint,
    state             text,
    attempt           integer,
    priority          integer,
    percent           real,
    message           text,
    puller_id         text,
    last_heartbeat_at timestamptz,
    lease_ms          integer,
    emitted_at        timestamptz,
    started_at        timestamptz,
    ended_at          timestamptz,
    diagnostics       json,
    waiting_until     timestamptz,
    waiting_for       text,
    stopping          text,
    history           json,
    appended          json,
    accounted_attempt integer
);

create type operation_row as (
    agenda_id   text,
    name        text,
    state       text,
    percent     double precision,
    message     text,
    started_at  timestamptz,
    ended_at    timestamptz,
    result      json,
    diagnostics json,
    reported_at timestamptz,
    tries       integer,
    prior       json,
    wait        json
);

-- What reconciliation looks at, so that it need not go through all that has ended: agendas that
-- had not ended when they were last seen. An index would cost every agenda that ends; most end
-- before they are listed here.
create table open_agendas (
    agenda_id text not null,
    constraint open_agendas_pkey primary key (agenda_id)
);

comment on table open_agendas is 'Agendas that had not ended when reconciliation last saw them.';

-- How far each of its scans has come.
create table reconciliation_scans (
    scan        text        not null,
    accepted_at timestamptz not null,
    agenda_id   text        not null,
    constraint reconciliation_scans_pkey primary key (scan)
);

-- How young agendas were that were removed, in one row: whoever remembers an id that no row has any
-- more must distinguish one that was removed from one that has not arrived.
create table removal_watermark (
    is_only     boolean     not null default true,
    accepted_at timestamptz,
    constraint removal_watermark_pkey primary key (is_only),
    constraint removal_watermark_one_row check (is_only)
);

comment on table removal_watermark is
'When the youngest agenda that was ever removed was accepted.';

insert into removal_watermark default values;

-- Who pulls what, by the last signs of life; written by the fold, seldom for each puller.
create table pullers (
    insight_id     text        not null,
    puller_id      text        not null,
    first_seen_at  timestamptz not null,
    last_sign_at   timestamptz not null,
    last_claim_at  timestamptz,
    idle           integer,
    last_agenda_id text        not null,
    constraint pullers_pkey primary key (insight_id, puller_id)
) with (fillfactor = 50);

comment on column pullers.idle is 'Runners without an agenda at the last claim; null over HTTP.';

-- Webhooks that are owed to customers: written by the transaction that ends the agenda.
create table webhooks (
    number       bigint      not null generated always as identity,
    webhook_id   text        not null,
    agenda_id    text        not null,
    customer_id  text        not null,
    url          text        not null,
    body         text        not null,
    tries        integer     not null default 0,
    due_at       timestamptz not null default now(),
    reason       text        not null default '',
    exhausted_at timestamptz,
    created_at   timestamptz not null default now(),
    constraint webhooks_pkey primary key (number),
    constraint webhooks_id_unique unique (webhook_id)
);

comment on table webhooks is
'Deleted once delivered; one whose tries are exhausted stays until retention.';
comment on column webhooks.body is 'The very bytes that are signed and sent.';

create index webhooks_due on webhooks (due_at) where exhausted_at is null;
create index webhooks_by_agenda on webhooks (agenda_id) where exhausted_at is null;

-- What came to nothing and waits for a person: copies of pop.dead-letters and pop.dead-webhooks, so
-- that they can be found, grouped, sent again and dismissed.
create table dead_letters (
    number         bigint      not null generated always as identity,
    letter_id      text        not null,
    kind           text        not null,
    code           text        not null,
    reason         text        not null,
    part           text        not null,
    at             timestamptz not null,
    customer_id    text,
    insight_id     text,
    agenda_id      text,
    webhook_id     text,
    sender_id      text,
    url            text,
    topic          text        not null,
    partition      integer     not null,
    record_offset  bigint      not null,
    record_key     bytea,
    value          bytea       not null,
    truncated      boolean     not null,
    issues         json,
    state          text        not null default 'open',
    settled_at     timestamptz,
    settled_by     text,
    settled_reason text,
    constraint dead_letters_pkey primary key (number),
    constraint dead_letters_id_unique unique (letter_id),
    constraint dead_letters_kind_known check (
        kind in ('unreadable', 'refused', 'exhausted', 'webhook')
    ),
    constraint dead_letters_state_known check (state in ('open', 'redriven', 'discarded'))
);

comment on column dead_letters.letter_id is 'Made of what it is about: a repeat has the same.';
comment on column dead_letters.sender_id is 'The customer who submitted it; null for others.';

create index dead_letters_by_state on dead_letters (state, number);
create index dead_letters_by_customer on dead_letters (customer_id, number);
create index dead_letters_by_code on dead_letters (code, number);

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
        kind in ('customer', 'insight', 'pool', 'template', 'schedule')
    ),
    constraint definitions_visibility_known check (visibility in ('owner', 'allowed', 'global'))
);

comment on column definitions.body is 'Fields left at their defaults are not in it.';
comment on column definitions.refers_to is 'kind/id of what may not be deleted while this is.';
comment on column definitions.allowed is 'Ids of customers in lower case.';

create index definitions_by_owner on definitions (owner_id, kind);
create index definitions_by_reference on definitions using gin (refers_to);

-- Every version there ever was, of API keys too; those not yet published are the outbox. A number
-- grows in the order of commits, for writers take turns. Whose a version was stands beside it, so
-- that what a customer does not see is not read to find that out; a deletion belongs to nobody.
create table definition_versions (
    number       bigint           not null generated always as identity,
    kind         text             not null,
    id           text collate "C" not null,
    version      bigint           not null,
    body         json,
    owner_id     text,
    visibility   text             not null default 'owner',
    allowed      text[]           not null default '{}',
    changed_at   timestamptz      not null default now(),
    published_at timestamptz,
    constraint definition_versions_pkey primary key (kind, id, version)
);

comment on column definition_versions.body is 'Null: it was deleted.';

create index definition_versions_unpublished on definition_versions (number)
where published_at is null;

-- What was decided about each occurrence of a schedule, as pop.schedule-events tells it. What became
-- of the agenda is in its own row.
create table occurrences (
    schedule_id text        not null,
    nominal_at  timestamptz not null,
    agenda_id   text        not null,
    decision    text        not null,
    reason      text,
    decided_at  timestamptz not null,
    constraint occurrences_pkey primary key (schedule_id, nominal_at, agenda_id),
    constraint occurrences_decision_known check (decision in ('fired', 'buffered', 'skipped'))
);

comment on column occurrences.agenda_id is 'Also of one that was skipped, and so has no agenda.';

create index occurrences_by_age on occurrences (decided_at);

-- API keys: who may call. A secret is stored as its SHA-256 alone: it is random and long, so that
-- nothing can be guessed from its hash.
create table api_keys (
    key_id        text        not null,
    secret_sha256 text        not null,
    customer_id   text,
    roles         text[]      not null,
    title         text        not null,
    created_at    timestamptz not null,
    created_by    text        not null,
    expires_at    timestamptz,
    revoked_at    timestamptz,
    replaced_by   text,
    constraint api_keys_pkey primary key (key_id),
    constraint api_keys_hashed check (secret_sha256 ~ '^[0-9a-f]{64}$'),
    constraint api_keys_roles_known check (
        roles <@ array['submit', 'pull', 'read', 'operate', 'admin'] and roles <> '{}'
    ),
    constraint api_keys_admin_is_an_operator check (
        customer_id is null or not 'admin' = any (roles)
    )
);

comment on column api_keys.customer_id is 'Whom the key speaks for; null is an operator.';

create index api_keys_by_customer on api_keys (customer_id, key_id);

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
create index audit_log_by_customer on audit_log (customer_id, at);

-- Append-only, for this code and for a slip of the hand alike. An owner of the table who means
-- it can drop the trigger, which a log of the database itself will show.
create function audit_log_is_append_only() returns trigger language plpgsql as $$
begin
    raise exception 'audit_log is append-only';
end
$$;

create trigger audit_log_append_only before update or delete or truncate on audit_log
for each statement execute function audit_log_is_append_only();

-- What is counted of agendas by hour, written by the transaction that folds their events. A row has
-- the number of a partition that this transaction holds, so no two processes write the same one.
-- The empty operation type is that of whole agendas. Times are whole microseconds.
create table stats (
    hour           timestamptz not null,
    partition      integer     not null,
    insight_id     text        not null,
    customer_id    text        not null,
    template_id    text        not null,
    operation_type text        not null,
    succeeded      bigint      not null,
    failed         bigint      not null,
    cancelled      bigint      not null,
    expired        bigint      not null,
    refused        bigint      not null,
    attempts       bigint      not null,
    worker_us      bigint      not null,
    wait_us        bigint      not null,
    run_us         bigint      not null,
    waits          bigint[]    not null,
    runs           bigint[]    not null,
    constraint stats_pkey primary key (
        customer_id, hour, operation_type, insight_id, template_id, partition
    )
) with (fillfactor = 50);

create index stats_by_hour on stats (hour, operation_type);

create type stats_row as (
    hour           timestamptz,
    partition      integer,
    insight_id     text,
    customer_id    text,
    template_id    text,
    operation_type text,
    succeeded      bigint,
    failed         bigint,
    cancelled      bigint,
    expired        bigint,
    refused        bigint,
    attempts       bigint,
    worker_us      bigint,
    wait_us        bigint,
    run_us         bigint,
    waits          bigint[],
    runs           bigint[]
);

-- Adds counts bucket by bucket.
create function added_buckets(one bigint[], other bigint[]) returns bigint[]
language sql immutable parallel safe as $$
    select array_agg(a + b order by place)
    from unnest(one, other) with ordinality as buckets (a, b, place)
$$;

create aggregate sum_buckets (bigint[]) (
    sfunc = added_buckets,
    stype = bigint[],
    initcond = '{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}'
);
