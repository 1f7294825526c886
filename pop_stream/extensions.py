"""What installed packages add to the product, by entry points."""

from importlib.metadata import entry_points

from pop_stream.policy.splitting.periods import ENTRY_POINTS, PeriodResolver, PeriodResolvers


def period_resolvers() -> PeriodResolvers:
    """The built-in periods, and those of entry points of the group `pop_stream.periods`.

    API, ingest and pullers each read them at their start: install a package in all of them.

    Raises:
        ValueError: If one cannot be imported, is no function, or takes a name that is taken.
    """
    custom: dict[str, PeriodResolver] = {}
    for one in entry_points(group=ENTRY_POINTS):
        try:
            found = one.load()
        except (ImportError, AttributeError) as error:
            msg = f"entry point {one.name} = {one.value!r} of {ENTRY_POINTS}: {error}"
            raise ValueError(msg) from error
        if not callable(found) or one.name in custom:
            msg = (
                f"entry point {one.name} = {one.value!r} of {ENTRY_POINTS}: is no function, or "
                "its name is taken; correct it, or uninstall its package"
            )
            raise ValueError(msg)
        custom[one.name] = found
    return PeriodResolvers(custom)
