-- name: give_signal
-- Keeps a signal for a while; one given before under the name is replaced.
insert into signals (customer_id, name, payload, given_at, given_by, expires_at)
values ($1, $2, $3, $4, $5, $6)
on conflict (customer_id, name) do update set
    payload = excluded.payload,
    given_at = excluded.given_at,
    given_by = excluded.given_by,
    expires_at = excluded.expires_at;

-- name: count_signals
-- How many signals of a customer are kept, the one of this name left out.
select count(*) as kept
from signals
where customer_id = $1 and name <> $2 and expires_at > $3;

-- name: list_signals
-- The signals that are kept, by name: one customer's or all.
select customer_id, name, payload, given_at, given_by, expires_at
from signals
where ($1::text is null or customer_id = $1) and expires_at > $2
order by customer_id, name
limit $3;

-- name: delete_expired_signals
-- Removes signals that are kept no more.
delete from signals
where expires_at <= $1;

-- name: answered_operations
-- Operations that wait for a signal which is kept, of agendas that wait for nothing else to
-- begin: those of an attempt that runs are looked at when it has ended.
select
    operations.agenda_id,
    operations.name,
    agendas.insight_id,
    agendas.attempt,
    signals.payload,
    signals.given_by
from operations
inner join agendas on operations.agenda_id = agendas.agenda_id
inner join
    signals
    on agendas.customer_id = signals.customer_id
    and operations.wait ->> 'signal' = signals.name
where
    operations.wait is not null
    and operations.state = 'waiting'
    and agendas.state in ('waiting', 'held')
    and signals.expires_at > $1
order by operations.agenda_id, operations.name
limit $2;
