"""A table whose writes of one event can be cut short, as by a crash."""

from dataclasses import dataclass, field

from fakes import MemoryReadyTable


@dataclass
class LoggedTable(MemoryReadyTable):
    """Rows whose writes of one event can be cut short."""

    log: list = field(default_factory=list)

    def __post_init__(self):
        MemoryReadyTable.__init__(self)

    def put(self, key, value):
        super().put(key, value)
        self.log.append((key, value))

    def delete(self, key):
        super().delete(key)
        self.log.append((key, None))

    def rewind(self, rows, keep):
        """Back to earlier rows, plus the first `keep` writes since."""
        self.data = dict(rows)
        for key, value in self.log[:keep]:
            self.data.pop(key, None)
            if value is not None:
                self.data[key] = value
