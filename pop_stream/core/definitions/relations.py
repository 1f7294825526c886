"""Which definitions need which others, by the keys of their records."""

from collections.abc import Iterator

from pop_stream.core.agendas.references import TOKEN
from pop_stream.core.definitions.definitions import Customer, Definition, Insight
from pop_stream.core.definitions.template import AgendaTemplate


def references_of(definition: Definition) -> Iterator[tuple[str, str]]:
    """Fields of a definition and the keys they name, which must be defined for it to work."""
    match definition:
        case Customer(pool=pool, default_insight=insight):
            if pool is not None:
                yield "pool", f"pool/{pool}"
            if insight is not None:
                yield "default_insight", f"insight/{insight}"
        case Insight(pool=pool):
            if pool is not None:
                yield "pool", f"pool/{pool}"
        case _:
            pass  # pools and templates need nothing


def deletion_blocked_by(definition: Definition) -> list[str]:
    """Keys of what may not be deleted as long as this definition is there.

    An owner, or the customer of a template's agendas, need not be defined: any customer has
    the defaults. But once it is, its definition is not taken away under them.
    """
    keys = [key for _, key in references_of(definition)]
    if isinstance(definition, Insight | AgendaTemplate) and definition.owner is not None:
        keys.append(f"customer/{definition.owner}")
    if isinstance(definition, AgendaTemplate):
        customer_id = definition.agenda.get("customer_id")
        if isinstance(customer_id, str) and not TOKEN.search(customer_id):
            keys.append(f"customer/{customer_id}")
    return sorted(set(keys))
