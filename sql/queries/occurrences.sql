-- name: add
-- Records decisions. One that was reported again, or that came to less than what is known, changes
-- nothing: what was fired once stays so.
insert into occurrences as known (
    schedule_id, nominal_at, agenda_id, decision, reason, decided_at
)
select *
from
    unnest(
        $1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::timestamptz[]
    )
on conflict (schedule_id, nominal_at, agenda_id) do update set
    decision = excluded.decision,
    reason = excluded.reason,
    decided_at = excluded.decided_at
where
    known.decision = 'buffered' and excluded.decision <> 'buffered'
    or known.decision = 'skipped' and excluded.decision = 'fired';

-- name: states
-- The next instants of a schedule, latest first, each with the state of its last run, or what else
-- became of it.
select
    instants.nominal_at,
    latest.state
from (
    select distinct nominal_at
    from occurrences
    where
        schedule_id = $1
        and ($2::timestamptz is null or nominal_at >= $2)
        and ($3::timestamptz is null or nominal_at < $3)
    order by nominal_at desc
    limit $4
) as instants
cross join lateral (
    select
        coalesce(
            agendas.state,
            case occurrences.decision when 'fired' then 'submitted' else occurrences.decision end
        ) as state
    from occurrences
    left join agendas on occurrences.agenda_id = agendas.agenda_id
    where
        occurrences.schedule_id = $1
        and occurrences.nominal_at = instants.nominal_at
    order by
        occurrences.decision = 'fired' desc,
        occurrences.decided_at desc,
        occurrences.agenda_id desc
    limit 1
) as latest
order by instants.nominal_at desc;

-- name: runs
-- What was decided about some instants, with what became of the agendas; the last ones of each.
select
    reported.nominal_at,
    reported.agenda_id,
    reported.decision,
    reported.reason,
    reported.decided_at,
    agendas.state,
    agendas.attempt,
    agendas.accepted_at,
    agendas.started_at,
    agendas.ended_at,
    agendas.message
from unnest($2::timestamptz[]) as instants (nominal_at)
cross join lateral (
    select *
    from occurrences
    where
        occurrences.schedule_id = $1
        and occurrences.nominal_at = instants.nominal_at
    order by
        occurrences.decision = 'fired' desc,
        occurrences.decided_at desc,
        occurrences.agenda_id desc
    limit $3
) as reported
left join agendas on reported.agenda_id = agendas.agenda_id
order by reported.nominal_at desc, reported.decision = 'fired' desc, reported.decided_at desc, reported.agenda_id desc;

-- name: count_aged
-- Decisions made before an instant, of which no agenda is left.
select count(*)
from occurrences
where
    decided_at < $1
    and not exists (
        select from agendas
        where agendas.agenda_id = occurrences.agenda_id
    );

-- name: delete_aged
-- Removes some of them.
delete from occurrences
where (schedule_id, nominal_at, agenda_id) in (
    select
        schedule_id,
        nominal_at,
        agenda_id
    from occurrences
    where
        decided_at < $1
        and not exists (
            select from agendas
            where agendas.agenda_id = occurrences.agenda_id
        )
    limit $2
);
