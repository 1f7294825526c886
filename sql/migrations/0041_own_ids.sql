-- Operators look for what customers call their agendas: the part of the id before the @. Ids that
-- customers did not choose have none, and take no place here.
create index agendas_by_own_id on agendas (split_part(agenda_id, '@', 1))
where agenda_id like '%@%';
