-- API keys: who may call. A secret is stored as its SHA-256 alone; see core/definitions/keys.py for why.
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
