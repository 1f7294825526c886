-- name: lock
-- One starter at a time, until its connection closes. The number is "pop_stre" in ASCII.
select pg_try_advisory_lock(8101817809924026981);

-- name: set_lock_timeout
-- A lock that is not to be had soon is given up: all who come later would wait behind it.
set lock_timeout = '2s';

-- name: create_table
-- What was applied, and what the file held then.
create table if not exists schema_migrations (
    number     integer     not null primary key,
    name       text        not null,
    checksum   text        not null,
    applied_at timestamptz not null default now()
);

-- name: table_exists
-- Whether anything was ever applied here.
select to_regclass('schema_migrations') is not null;

-- name: applied
-- Every migration that was applied.
select number, checksum
from schema_migrations;

-- name: record
-- Notes one, in the transaction that applies it.
insert into schema_migrations (number, name, checksum)
values ($1, $2, $3);
