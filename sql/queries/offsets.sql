-- name: next_offsets
-- How far each partition of a topic has been folded.
select partition, next_offset
from consumed_offsets
where topic = $1;

-- name: insert_offsets
-- Partitions that were never read begin at 0.
insert into consumed_offsets (topic, partition, next_offset)
select $1, partition, 0
from unnest($2::integer[]) as begun (partition)
on conflict do nothing;

-- name: advance_offsets
-- Moves partitions on that are still where the reader thinks they are, and locks them until
-- the transaction ends. Fewer rows than partitions: another process has been here.
update consumed_offsets as consumed
set next_offset = span.next_offset
from unnest($2::integer[], $3::bigint[], $4::bigint[])
    as span (partition, expected, next_offset)
where
    consumed.topic = $1
    and consumed.partition = span.partition
    and consumed.next_offset = span.expected;
