"""What a local stack runs: servers, parts, how many of each, and their settings."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pop_stream.devserver.supervisor import RestartPolicy
from pop_stream.model.definitions import Insight
from pop_stream.model.definitions_file import parse_definitions_file
from pop_stream.operations.errors import UsageError


@dataclass(frozen=True, slots=True)
class StackPlan:
    """What a local stack runs.

    Attributes:
        folder: Where data and logs live.
        definitions: File of customers and insights; the pullers pull all its insights.
        port: Of the API; None takes the first free one from 8080 on.
        copies: Processes of a part other than the puller, by its name; else one.
        handlers: `module:attribute` of further handlers for the pullers.
        overrides: Further settings for every part.
        restart: When a crashed part starts again.
        only: Parts to start, by name; None starts all.
        brokers: Of the embedded Kafka: 1, or 3 that replicate to each other.
        environment: Further variables for every part, as they are.
        restarts_servers: Servers that end by themselves are started again, and are no failure.
    """

    folder: Path
    definitions: Path
    port: int | None = None
    pullers: int = 1
    copies: Mapping[str, int] = field(default_factory=dict)
    handlers: tuple[str, ...] = ()
    overrides: Mapping[str, object] = field(default_factory=dict)
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    only: Collection[str] | None = None
    brokers: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    restarts_servers: bool = False

    def insights(self) -> Sequence[str]:
        """Ids of the insights that the file defines, read before anything is started.

        Raises:
            UsageError: If the file is wrong.
        """
        try:
            found = parse_definitions_file(tomllib.loads(self.definitions.read_text()))
        except (OSError, ValueError, TypeError) as error:
            msg = f"{self.definitions}: {error}"
            raise UsageError(msg) from None
        return [one.id for one in found if isinstance(one, Insight)]
