-- name: find
-- One key.
select
    key_id, secret_sha256, customer_id, roles, title, created_at, created_by, expires_at,
    revoked_at, replaced_by
from api_keys
where key_id = $1;

-- name: find_for_change
-- One key, held until the transaction ends.
select
    key_id, secret_sha256, customer_id, roles, title, created_at, created_by, expires_at,
    revoked_at, replaced_by
from api_keys
where key_id = $1
for update;

-- name: list
-- A page of all keys, or of one customer's, by id.
select
    key_id, secret_sha256, customer_id, roles, title, created_at, created_by, expires_at,
    revoked_at, replaced_by
from api_keys
where ($1::text is null or customer_id = $1) and key_id > $2
order by key_id
limit $3;

-- name: count_active
-- Keys that speak for a customer and have not ended.
select count(*)
from api_keys
where customer_id = $1 and revoked_at is null and (expires_at is null or expires_at > $2);

-- name: insert
-- A new key.
insert into api_keys (
    key_id, secret_sha256, customer_id, roles, title, created_at, created_by, expires_at,
    revoked_at, replaced_by
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: update
-- What can change of a key: when it ends, and what came after it.
update api_keys
set expires_at = $2, revoked_at = $3, replaced_by = $4
where key_id = $1;
