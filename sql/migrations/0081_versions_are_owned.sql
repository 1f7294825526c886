-- Whose a version was, so that what a customer does not see is not read to find that out. A
-- deletion belongs to nobody, and neither does what a process of before this writes meanwhile.
alter table definition_versions
add column owner_id text,
add column visibility text not null default 'owner',
add column allowed text[] not null default '{}';

update definition_versions
set
    owner_id = case
        when kind = 'customer' then id
        when kind in ('insight', 'template') then body ->> 'owner'
    end,
    visibility = case
        when kind not in ('insight', 'template') then 'owner'
        else
            coalesce(
                body ->> 'visibility',
                case when body ->> 'owner' is null then 'global' else 'owner' end
            )
    end,
    allowed = array(select lower(one) from json_array_elements_text(body -> 'allowed') as one)
where body is not null;
