-- Keys go through the outbox of definitions, so that parts know them while Postgres is away; those
-- that are there already are told of once.
insert into definition_versions (kind, id, version, body)
select
    'key',
    key_id,
    1,
    json_strip_nulls(
        json_build_object(
            'id', key_id,
            'secret_sha256', secret_sha256,
            'customer_id', customer_id,
            'roles', roles,
            'title', title,
            'created_at', created_at,
            'created_by', created_by,
            'expires_at', expires_at,
            'revoked_at', revoked_at,
            'replaced_by', replaced_by
        )
    )
from api_keys
order by created_at, key_id;
