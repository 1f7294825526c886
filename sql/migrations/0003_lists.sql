-- Lists of agendas, newest first, of all customers or of one. Both keys are written once, when
-- an agenda is accepted, so later updates of its row touch no index.
create index agendas_by_acceptance on agendas (
    (coalesce(accepted_at, '-infinity')), agenda_id
);

create index agendas_by_customer on agendas (
    customer_id, (coalesce(accepted_at, '-infinity')), agenda_id
);
