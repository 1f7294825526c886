-- How young agendas were that were removed, in one row: whoever remembers an id that no row has any
-- more must tell one that was removed from one that has not arrived.
create table removals (
    is_only     boolean     not null default true,
    accepted_at timestamptz,
    constraint removals_pkey primary key (is_only),
    constraint removals_one_row check (is_only)
);

comment on table removals is 'When the youngest agenda that was ever removed was accepted.';

insert into removals default values;
