"""What an operator may set: environment variables with the prefix POP_."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

Seconds = Annotated[timedelta, Field(gt=timedelta(0), le=timedelta(days=1))]


class Settings(BaseSettings):
    """Read once, at the start of a process; a wrong value stops it with the field's name."""

    model_config = SettingsConfigDict(env_prefix="POP_", frozen=True, extra="ignore")

    kafka_bootstrap: str = Field(
        default="127.0.0.1:9092", description="Brokers to ask first, host:port, comma between."
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="How clients speak to the broker."
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="PLAIN", description="Used with a SASL protocol."
    )
    kafka_username: str | None = Field(default=None, description="SASL user.")
    kafka_password: SecretStr | None = Field(default=None, description="SASL password.")
    kafka_ca_file: Path | None = Field(
        default=None, description="PEM file of the authority that signed the brokers."
    )
    postgres_dsn: SecretStr = Field(
        default=SecretStr("postgresql://127.0.0.1:5432/pop_stream"),
        description="Database of the summaries.",
    )
    postgres_pool: Annotated[int, Field(ge=1, le=200)] = Field(
        default=8, description="Most connections of one process."
    )
    topic_prefix: str = Field(
        default="pop.", description="Before every topic, group and client id.", max_length=40
    )
    replication_factor: Annotated[int, Field(ge=1, le=10)] = Field(
        default=1, description="Of topics that are created; 3 on a real cluster."
    )
    definitions_file: Path | None = Field(
        default=None, description="TOML with customers and insights, published at migrate."
    )
    http_host: str = Field(default="127.0.0.1", description="Where the API listens.")
    http_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8080, description="Where the API listens; 0 takes a free port."
    )
    api_url: str = Field(
        default="http://127.0.0.1:8080", description="Where the command line finds the API."
    )
    max_agenda_bytes: Annotated[int, Field(ge=1024, le=900_000)] = Field(
        default=512 * 1024, description="Largest agenda; a larger one is refused with 413."
    )
    max_request_bytes: Annotated[int, Field(ge=1024, le=1_000_000_000)] = Field(
        default=32 * 1024 * 1024,
        description="Largest request; what all requests hold at once is 4 times this.",
    )
    max_batch_agendas: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=10_000, description="Most agendas in one request."
    )
    publish_timeout: Seconds = Field(
        default=timedelta(seconds=10),
        description="After it, a submission is answered with 503.",
    )
    lag_interval: Seconds = Field(
        default=timedelta(milliseconds=250), description="Between two looks at consumer lag."
    )
    scheduler_data: Path = Field(
        default=Path(".pop-stream/scheduler"), description="Local folder of the table."
    )
    session_timeout: Seconds = Field(
        default=timedelta(seconds=6),
        description="A dead part's partitions move after this; the broker sets the least.",
    )
    allowed_commands: tuple[str, ...] = Field(
        default=(),
        description="Programs the `command` handler may run; JSON list; none if empty.",
    )
    puller_concurrency: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=8, description="Agendas one puller process runs at a time."
    )
    puller_grace: Seconds = Field(
        default=timedelta(seconds=30),
        description="How long running agendas may go on once a puller is told to stop.",
    )
    heartbeat: Seconds = Field(
        default=timedelta(seconds=5),
        description="Between a puller's reports on a running agenda.",
    )
    metrics_host: str = Field(
        default="127.0.0.1", description="Where the scheduler shows its metrics."
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None, description="Port of the scheduler's `/metrics`; none if unset."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info")
    log_format: Literal["json", "console"] = Field(default="json")
