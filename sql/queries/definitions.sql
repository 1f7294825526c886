-- name: lock_for_write
-- Writers go one after the other until their transaction ends: rare work, and only so is the
-- order of numbers that of commits. The number is "pop_defs" in ASCII.
select pg_advisory_xact_lock(8101817809671382643);

-- name: lock_for_publish
-- So do publishers, whom no writer waits for. The number is "pop_defp" in ASCII.
select pg_advisory_xact_lock(8101817809671382640);

-- name: get
-- One definition, if the customer sees it; without a customer, all are seen.
select kind, id, version, body, created_at, updated_at
from definitions
where
    kind = $1 and id = $2
    and (
        $3::text is null or visibility = 'global' or owner_id = $3
        or (visibility = 'allowed' and $4::text = any(allowed))
    );

-- name: get_version
-- What it was in one version; its body is null if that was its deletion. A customer must see
-- that version, and the last there was: what was narrowed and then deleted stays narrow.
select kind, id, version, body, changed_at as created_at, changed_at as updated_at
from definition_versions
where
    kind = $1 and id = $2 and version = $3
    and (
        $4::text is null or visibility = 'global' or owner_id = $4
        or (visibility = 'allowed' and $5::text = any(allowed))
    )
    and ($4::text is null or (
        select
            visibility = 'global' or owner_id is not distinct from $4
            or (visibility = 'allowed' and $5::text = any(allowed))
        from definition_versions
        where kind = $1 and id = $2 and body is not null
        order by version desc
        limit 1
    ));

-- name: ids_of
-- Those of a kind that have this id, or whose customers call them so.
select id from definitions
where kind = $1 and (id = $2 or split_part(id, '@', 1) = $2)
order by id
limit 3;

-- name: upsert
-- Writes one, new or not.
insert into definitions as known (
    kind, id, version, body, refers_to, owner_id, visibility, allowed
)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (kind, id) do update set
    version = excluded.version,
    body = excluded.body,
    refers_to = excluded.refers_to,
    owner_id = excluded.owner_id,
    visibility = excluded.visibility,
    allowed = excluded.allowed,
    updated_at = now()
returning kind, id, version, body, created_at, updated_at;

-- name: delete
-- Deletes one.
delete from definitions
where kind = $1 and id = $2;

-- name: next_version
-- One that follows a deletion goes on counting, so that a version is never taken twice.
select coalesce(max(version), 0) + 1
from definition_versions
where kind = $1 and id = $2;

-- name: record_version
-- The outbox row, in the transaction of the change.
insert into definition_versions (kind, id, version, body, owner_id, visibility, allowed)
values ($1, $2, $3, $4, $5, $6, $7);

-- name: prune_versions
-- Removes versions of one that are published and older than the last so many; never the last.
delete from definition_versions
where kind = $1 and id = $2 and version <= $3::bigint - $4::bigint and published_at is not null;

-- name: count_owned
-- How many of a kind a customer owns.
select count(*)
from definitions
where kind = $1 and owner_id = $2;

-- name: count_rules
-- How many rules there are, whosever they are.
select count(*)
from definitions
where kind = 'rule';

-- name: missing_references
-- Of these kind/id, those that are not defined.
select wanted.key
from unnest($1::text[]) with ordinality as wanted (key, position)
where
    not exists (
        select from definitions
        where kind = split_part(wanted.key, '/', 1) and id = split_part(wanted.key, '/', 2)
    )
order by wanted.position;

-- name: referrers
-- What refers to one of them, and to which.
select definitions.kind, definitions.id, wanted.key
from unnest($1::text[]) as wanted (key)
inner join definitions on definitions.refers_to @> array[wanted.key]
order by definitions.kind, definitions.id
limit $2;

-- name: unfinished_of_customer
-- Agendas that a customer still has open: how many, and three of them.
select count(*) as agendas, (array_agg(agenda_id order by agenda_id))[:3] as some
from agendas
where customer_id = $1 and state <> all($2::text[]);

-- name: unfinished_of_insight
-- Agendas that an insight still has open: how many, and three of them.
select count(*) as agendas, (array_agg(agenda_id order by agenda_id))[:3] as some
from agendas
where insight_id = $1 and state <> all($2::text[]);

-- name: unpublished
-- The outbox, oldest first.
select number, kind, id, version, body
from definition_versions
where published_at is null
order by number
limit $1;

-- name: oldest_unpublished
-- What has been in the outbox for longest, and for how long.
select kind || '/' || id as key, now() - changed_at as age
from definition_versions
where published_at is null
order by number
limit 1;

-- name: mark_published
-- Takes them out of the outbox.
update definition_versions
set published_at = now()
where number = any($1::bigint[]);

-- name: newest
-- The last version of everything that was ever defined.
select distinct on (kind, id) number, kind, id, version, body
from definition_versions
order by kind, id, version desc;
