"""What an operator may set: environment variables with the prefix POP_."""

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

Days = Annotated[timedelta, Field(ge=timedelta(hours=1), le=timedelta(days=36_500))]
Seconds = Annotated[timedelta, Field(gt=timedelta(0), le=timedelta(days=1))]

Leeway = Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(minutes=5))]
JwtAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]


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
        default="http://127.0.0.1:8080",
        description="Where the command line and pullers find the API.",
    )
    api_token: SecretStr | None = Field(
        default=None, description="Key or token that the command line and pullers show the API."
    )
    auth: Literal["off", "required"] | None = Field(
        default=None,
        description="Whether the API asks who calls. Unset: only if it listens beyond "
        "loopback, so that nobody opens it to a network by mistake.",
    )
    ingest_auth: Literal["off", "optional", "required"] = Field(
        default="off",
        description="Whether records of `pop.submissions` must name their sender, by a key or "
        "token in the header `authorization`. With `optional`, records without one are taken.",
    )
    signing_secret: Annotated[SecretStr, Field(min_length=32)] | None = Field(
        default=None,
        description="Shared by all processes of API and ingest: signs what the API has "
        "checked, so that no caller's key goes through Kafka, and workers' lease tokens. "
        "Needed with POP_INGEST_AUTH=required, and by an API that asks who calls if "
        "POP_POSTGRES_DSN has no password: that signs lease tokens otherwise.",
    )
    jwt_issuer: str | None = Field(
        default=None, description="Claim `iss` of bearer tokens; no token is taken if unset."
    )
    jwt_audience: str = Field(default="pop_stream", description="Claim `aud` they must have.")
    jwt_jwks: str | None = Field(
        default=None, description="URL or file of the key set that signs bearer tokens."
    )
    jwt_algorithms: tuple[JwtAlgorithm, ...] = Field(
        default=("RS256", "ES256", "EdDSA"),
        min_length=1,
        description="Signatures that are taken; JSON list. Shared secrets never are.",
    )
    jwt_leeway: Leeway = Field(
        default=timedelta(seconds=30),
        description="By how much the issuer's clock may differ; at most 5 minutes.",
    )
    jwt_customer_claim: str = Field(
        default="customer_id", description="Claim with a customer's id; `*` is an operator."
    )
    jwt_roles_claim: str = Field(
        default="roles", description="Claim with roles: a list, or a text with blanks between."
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
    scheduler_max_agendas: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        default=1_000_000,
        description="Agendas that a scheduler holds, of all its insights; above, submissions "
        "to its large insights get 503. A million take 1 GB beside their bytes.",
    )
    scheduler_max_bytes: Annotated[int, Field(ge=1_000_000, le=1_000_000_000_000)] = Field(
        default=1_000_000_000,
        description="The same in bytes of agendas, which it keeps in memory too.",
    )
    session_timeout: Seconds = Field(
        default=timedelta(seconds=6),
        description="A dead part's partitions move after this; the broker sets the least.",
    )
    instance: Annotated[str, Field(pattern=r"^[A-Za-z0-9._@:-]{1,100}$")] | None = Field(
        default=None,
        description="A name that one living process has at a time, and that who is started in "
        "its place has again, such as a pod's or a unit's. Then what a killed one left in its "
        "groups moves at its restart, and not first after POP_SESSION_TIMEOUT.",
    )
    stall_timeout: Annotated[
        timedelta, Field(ge=timedelta(seconds=10), le=timedelta(days=1))
    ] = Field(
        default=timedelta(seconds=60),
        description="A scheduler whose input waits for so long without a commit, while the "
        "broker answers, ends with an error, to be started again.",
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
        description="How long running agendas may go on once a puller gets a stop signal.",
    )
    heartbeat: Seconds = Field(
        default=timedelta(seconds=5),
        description="Between a puller's reports on a running agenda.",
    )
    metrics_host: str = Field(
        default="127.0.0.1", description="Where scheduler and rollup show their metrics."
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None, description="Port of the scheduler's `/metrics`; none if unset."
    )
    retain_succeeded: Days = Field(
        default=timedelta(days=30), description="How long a success is kept, from its end."
    )
    retain_failed: Days = Field(
        default=timedelta(days=90),
        description="How long a failure is kept, and an exhausted webhook.",
    )
    retain_stopped: Days = Field(
        default=timedelta(days=30),
        description="How long what was cancelled or expired is kept.",
    )
    retain_refused: Days = Field(
        default=timedelta(days=14), description="How long a refusal is kept."
    )
    retain_every: Seconds = Field(
        default=timedelta(hours=1), description="Between two removals of what is old enough."
    )
    reconcile_every: Annotated[
        timedelta,
        BeforeValidator(lambda text: timedelta(0) if text == "0" else text),
        Field(ge=timedelta(0), le=timedelta(days=1)),
    ] = Field(
        default=timedelta(minutes=1),
        description="Between two reconciliations, which requeue accepted agendas that no "
        "scheduler has; 0 turns them off. What changed in this time is left alone.",
    )
    rollup_metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None, description="Port of the rollup's `/metrics`; none if unset."
    )
    webhook_keys: tuple[SecretStr, ...] = Field(
        default=(),
        description="Each customer's secret is made from these; JSON list, newest first; "
        "without any, no webhook is sent. With several, each signs.",
    )
    webhook_networks: tuple[str, ...] = Field(
        default=(),
        description="Internal networks that webhooks may go to, as 10.1.0.0/16; JSON list.",
    )
    webhook_tries: Annotated[int, Field(ge=1, le=100)] = Field(
        default=10, description="Tries of a webhook before it becomes a dead letter."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info")
    log_format: Literal["json", "console"] = Field(default="json")

    @property
    def listens_on_loopback(self) -> bool:
        """Whether only this machine reaches the API."""
        if self.http_host == "localhost":
            return True
        try:
            return ip_address(self.http_host).is_loopback
        except ValueError:
            return False

    @property
    def requires_authentication(self) -> bool:
        """Whether the API serves only callers that it knows."""
        if self.auth is None:
            return not self.listens_on_loopback
        return self.auth == "required"

    @property
    def signing_key(self) -> bytes | None:
        """`signing_secret`, to seal and to judge with; None if there is none."""
        return self.signing_secret.get_secret_value().encode() if self.signing_secret else None

    @property
    def lease_signing_key(self) -> bytes:
        """What lease tokens are signed with; the same in every process of the API.

        `signing_secret`, or else the database's address, which they share; it is as secret as
        the password in it.
        """
        secret = self.signing_secret or self.postgres_dsn
        return secret.get_secret_value().encode()

    @model_validator(mode="after")
    def _check_ingest_secret(self) -> Self:
        if self.ingest_auth == "required" and self.signing_secret is None:
            msg = (
                "POP_INGEST_AUTH=required needs POP_SIGNING_SECRET, 32 characters or more, the "
                "same for API and ingest: without it, what the API takes is refused"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_lease_secret(self) -> Self:
        dsn = urlsplit(self.postgres_dsn.get_secret_value())
        has_secret = self.signing_secret is not None or dsn.password or "password=" in dsn.query
        if self.requires_authentication and not has_secret:
            msg = (
                "an API that asks who calls needs POP_SIGNING_SECRET, 32 characters or more, "
                "the same in all its processes, or a password in POP_POSTGRES_DSN: without "
                "either, anyone could sign a lease token"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_jwks_for_issuer(self) -> Self:
        if (self.jwt_issuer is None) != (self.jwt_jwks is None):
            msg = "POP_JWT_ISSUER and POP_JWT_JWKS go together: set both, or neither"
            raise ValueError(msg)
        return self
