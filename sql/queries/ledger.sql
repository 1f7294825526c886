-- name: entries
-- Where the given agendas stand.
select agenda_id, state, attempt, insight_id, ended_at is not null as has_ended
from agendas
where agenda_id = any($1::text[]);

