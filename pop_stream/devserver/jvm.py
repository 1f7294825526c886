"""How one of Kafka's Java programs is run: the runtime, the jars, the options."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from pop_stream.devserver.wheels import java

LOG4J_FILE: Final = "log4j2.properties"
"""In the working directory of every program."""

_OPTIONS: Final = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    # Only the quick compiler: beside Python workers on few cores it starts a broker 0.5 s
    # sooner and halves its processor time over the first million records; only after that is
    # the optimising one ahead, by a microsecond a record.
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    # Java 25 warns about what Kafka's compression libraries need.
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    # Else it tells of each class that a cache of classes does without.
    "-Xlog:aot*=error",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disableJmx=true",
    f"-Dlog4j2.configurationFile={LOG4J_FILE}",
)


@dataclass(frozen=True, slots=True)
class Jvm:
    """What all programs of one installation of Kafka share.

    Attributes:
        jars: The class path, in order.
        options: Further ones, of a broker as well as of a tool.
    """

    jars: Sequence[Path]
    options: Sequence[str] = ()

    def command(self, main: str, *arguments: str) -> tuple[str, ...]:
        """The absolute program and the arguments that run class `main`."""
        classpath = ":".join(map(str, self.jars))
        options = (*_OPTIONS, *self.options)
        return (str(java()), "-cp", classpath, *options, main, *arguments)

    def recording_classes(self, cache: Path) -> Self:
        """The same, but a program's orderly end leaves a cache of the classes it loaded."""
        return replace(self, options=(*self.options, f"-XX:AOTCacheOutput={cache}"))

    def with_classes(self, cache: Path) -> Self:
        """The same, using a class cache; Java ignores one that does not fit."""
        return replace(self, options=(*self.options, f"-XX:AOTCache={cache}"))
