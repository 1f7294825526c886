-- What reconciliation looks at, so that it need not go through all that has ended: agendas that
-- had not ended when they were last seen. An index would cost every agenda that ends; most end
-- before they are listed here.
create table open_agendas (
    agenda_id text not null,
    constraint open_agendas_pkey primary key (agenda_id)
);

comment on table open_agendas is 'Agendas that had not ended when reconciliation last saw them.';

-- How far each of its walks has come.
create table reconciliation_walks (
    walk      text        not null,
    place     timestamptz not null,
    agenda_id text        not null,
    constraint reconciliation_walks_pkey primary key (walk)
);
