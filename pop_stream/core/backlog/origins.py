"""Which pages were placed already, known by where they came from."""

from collections.abc import Mapping

from pop_stream.core.events import NO_ORIGIN, Origin


class PlacedOffsets:
    """The last place seen of every partition that agendas came from."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def record_if_new(self, origin: Origin) -> bool:
        """Whether it is past all that was seen of its partition; takes note that it was."""
        here = (origin.offset, origin.index)
        if here <= self._last.get(origin.partition, (-1, -1)):
            return False
        self._last[origin.partition] = here
        return True

    def noted(self) -> dict[str, tuple[int, int]]:
        """What a delta says of it."""
        return {str(partition): at for partition, at in self._last.items()}

    def apply(self, noted: Mapping[str, tuple[int, int]]) -> None:
        """Lay what a delta says over what is known."""
        self._last.update({int(partition): at for partition, at in noted.items()})


def is_comparable(origin: Origin) -> bool:
    """Whether it says where its agenda came from."""
    return origin.partition != NO_ORIGIN
