"""What can go wrong before the embedded servers serve.

```
DevServerError
├─ FolderLockedError      another process owns the data folder
├─ JarsUnavailableError   Kafka's jars are neither cached nor to be had
└─ ServerStartError       a server ended by itself, or did not accept in time
```
"""

from pathlib import Path

ALTERNATIVES = (
    "Other ways: point POP_KAFKA_BOOTSTRAP and POP_POSTGRES_DSN at servers that run already, "
    "or start both with `docker compose up`."
)


class DevServerError(Exception):
    """The embedded servers cannot be had; the text says what was tried and what to do."""


class FolderLockedError(DevServerError):
    """Another process owns the data folder."""

    def __init__(self, folder: Path, holder: int | None) -> None:
        self.folder = folder
        self.holder = holder
        who = f"process {holder}" if holder is not None else "another process"
        remedy = f"stop it (kill {holder})" if holder is not None else "stop it"
        super().__init__(
            f"{folder} is in use by {who}: {remedy}, or choose another folder. {ALTERNATIVES}"
        )


class JarsUnavailableError(DevServerError):
    """Kafka's jars are not in the cache, and fetching them failed."""

    def __init__(self, *, coordinates: str, cache: Path, reason: str) -> None:
        self.coordinates = coordinates
        self.cache = cache
        self.reason = reason
        super().__init__(
            f"Cannot get the jars of {coordinates}: tried the cache {cache}, then Maven Central"
            f" by way of jgo: {reason}. Behind a proxy that re-signs TLS, let"
            f" REQUESTS_CA_BUNDLE name its certificates. {ALTERNATIVES}"
        )


class ServerStartError(DevServerError):
    """A server ended by itself or did not accept in time; carries the end of its log."""

    def __init__(self, server: str, reason: str, log_tail: str) -> None:
        self.server = server
        self.reason = reason
        self.log_tail = log_tail
        super().__init__(
            f"{server} does not run: {reason}. Last lines of its log:\n"
            f"{log_tail}\n{ALTERNATIVES}"
        )
