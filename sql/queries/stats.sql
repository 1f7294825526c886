-- name: add
-- Adds to the rows of a partition that this transaction holds.
insert into stats as known (
    hour, partition, insight_id, customer_id, template_id, operation_type, succeeded, failed,
    cancelled, expired, refused, attempts, worker_us, wait_us, run_us, waits, runs
)
select given_row.* from unnest($1::stats_row[]) as given_row
on conflict (
    customer_id, hour, operation_type, insight_id, template_id, partition
) do update set
    succeeded = known.succeeded + excluded.succeeded,
    failed = known.failed + excluded.failed,
    cancelled = known.cancelled + excluded.cancelled,
    expired = known.expired + excluded.expired,
    refused = known.refused + excluded.refused,
    attempts = known.attempts + excluded.attempts,
    worker_us = known.worker_us + excluded.worker_us,
    wait_us = known.wait_us + excluded.wait_us,
    run_us = known.run_us + excluded.run_us,
    waits = added_buckets(known.waits, excluded.waits),
    runs = added_buckets(known.runs, excluded.runs);

-- name: count_aged
-- Rows of hours before an instant.
select count(*) from stats
where hour < $1;

-- name: delete_aged
-- Removes some rows of hours before an instant.
delete from stats
where ctid = any(array(select ctid from stats where hour < $1 limit $2));

-- name: sums
-- Sums of a range of hours, about operation types or whole agendas; groups are put in.
select
    /* groups */
    count(*) as rows,
    coalesce(sum(succeeded), 0)::bigint as succeeded,
    coalesce(sum(failed), 0)::bigint as failed,
    coalesce(sum(cancelled), 0)::bigint as cancelled,
    coalesce(sum(expired), 0)::bigint as expired,
    coalesce(sum(refused), 0)::bigint as refused,
    coalesce(sum(attempts), 0)::bigint as attempts,
    coalesce(sum(worker_us), 0)::bigint as worker_us,
    coalesce(sum(wait_us), 0)::bigint as wait_us,
    coalesce(sum(run_us), 0)::bigint as run_us,
    sum_buckets(waits) as waits,
    sum_buckets(runs) as runs
from stats
where
    hour >= $1
    and hour < $2
    and (operation_type <> '') = $3
    and ($4::text[] is null or customer_id = any($4))
    and ($5::text[] is null or insight_id = any($5))
    and ($6::text[] is null or template_id = any($6))
    and ($7::text[] is null or operation_type = any($7))
