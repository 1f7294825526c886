"""What an operator may set: environment variables with the prefix POP_."""

from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

Days = Annotated[timedelta, Field(ge=timedelta(hours=1), le=timedelta(days=36_500))]
Seconds = Annotated[timedelta, Field(gt=timedelta(0), le=timedelta(days=1))]


def _check_network(text: str) -> str:
    ip_network(text)
    return text


Network = Annotated[str, AfterValidator(_check_network)]

Leeway = Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(minutes=5))]
JwtAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]


def is_loopback(host: str) -> bool:
    """Whether a host by this name, or of this address, is reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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
    http_hosts: tuple[str, ...] = Field(
        default=(),
        description="Names by which an API that asks nobody who calls may be called, beside "
        "localhost, the names in POP_HTTP_HOST and POP_API_URL, and any address; JSON list.",
    )
    api_url: str = Field(
        default="http://127.0.0.1:8080",
        description="Where the command line and pullers find the API.",
    )
    api_token: SecretStr | None = Field(
        default=None, description="Key or token that the command line and pullers show the API."
    )
    console: bool = Field(
        default=True, description="Whether the API's process serves the web console too."
    )
    console_path: Annotated[str, Field(pattern=r"^(/[a-z0-9][a-z0-9._-]*)+$")] = Field(
        default="/ui", description="Where on the API's address the web console is."
    )
    console_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="A port of its own for the web console; the API's if unset."
    )
    console_session: Annotated[
        timedelta, Field(ge=timedelta(minutes=1), le=timedelta(days=30))
    ] = Field(
        default=timedelta(hours=8),
        description="How long a viewer of the web console stays signed in.",
    )
    oidc_issuer: str | None = Field(
        default=None,
        description="URL of the OpenID Connect issuer where viewers of the web console may "
        "sign in; `POP_JWT_ISSUER` and `POP_JWT_JWKS` must be of the same, and "
        "`POP_JWT_AUDIENCE` the client id.",
    )
    oidc_client_id: str = Field(default="", description="Of the web console at that issuer.")
    oidc_client_secret: SecretStr | None = Field(
        default=None, description="Of that client; unset if it is a public one."
    )
    oidc_redirect_url: str = Field(
        default="",
        description="Where the issuer sends viewers back to: the web console's address with "
        "`/sign-in/callback`, as registered there.",
    )
    oidc_scopes: str = Field(
        default="openid", description="What is asked for there, with blanks between."
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
    defined_customers_only: bool = Field(
        default=False,
        description="Refuse agendas of customers that are not defined. The same for API and "
        "ingest; without it, such a customer has weight 1 and no limits of its own.",
    )
    admission_policies: tuple[str, ...] = Field(
        default=(),
        description="JSON list of entry points of the group pop_stream.admission_policies, in "
        "the order in which they are asked. The same for API and ingest.",
    )
    signing_secrets: tuple[Annotated[SecretStr, Field(min_length=32)], ...] = Field(
        default=(),
        description="JSON list, newest first, shared by API, ingest, rollup and doctor: signs "
        "what API and ingest write to Kafka, which nobody else's word can stand in for then, "
        "and workers' lease tokens. The first signs, each is believed. Needed by an API that "
        "asks who calls, and with POP_INGEST_AUTH=required.",
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
    max_templates: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1_000, description="Templates of one customer; one more is refused with 409."
    )
    max_schedules: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1_000, description="Schedules of one customer; one more is refused with 409."
    )
    max_keys: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=100,
        description="Keys of one customer that have not ended; one more is refused with 409.",
    )
    max_changes_per_hour: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1_000,
        description="Changes of definitions and keys by one customer; one more gets 429.",
    )
    max_streams: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=500,
        description="Event streams that one customer has open at one process of the API; one "
        "more gets 429.",
    )
    kept_versions: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=100, description="Versions of each definition that are kept to be read."
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
    http_networks: tuple[Network, ...] = Field(
        default=(),
        description="Internal networks that the `http` handler may call, as 10.1.0.0/16, "
        "redirects included; JSON list. Whoever submits names the address.",
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
        default="127.0.0.1", description="Where parts other than the API show their metrics."
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="Port of `/metrics`, `/healthz` and `/readyz` of a part other than the "
        "API; none if unset. Each process needs a port, or an address, of its own.",
    )
    tracing: bool = Field(
        default=False,
        description="Whether spans are made and exported, as OpenTelemetry's own variables "
        "say: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER_ARG (a ratio, 0.01 if unset) "
        "and so on. Needs the extra `otel`.",
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
    retain_dead_letters: Days = Field(
        default=timedelta(days=30),
        description="How long a dead letter is kept in the database, from when it was written.",
    )
    retain_stats: Days = Field(
        default=timedelta(days=400), description="How long what was counted by hour is kept."
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
    webhook_keys: tuple[SecretStr, ...] = Field(
        default=(),
        description="Each customer's secret is made from these; JSON list, newest first; "
        "without any, no webhook is sent. With several, each signs.",
    )
    webhook_networks: tuple[Network, ...] = Field(
        default=(),
        description="Internal networks that webhooks may go to, as 10.1.0.0/16; JSON list.",
    )
    webhook_tries: Annotated[int, Field(ge=1, le=100)] = Field(
        default=10, description="Tries of a webhook before it becomes a dead letter."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info")
    log_format: Literal["json", "console"] = Field(default="json")

    @property
    def console_url(self) -> str:
        """Where the web console is, for whoever calls the API by `api_url`."""
        url = urlsplit(self.api_url)
        place = f"{url.hostname}:{self.console_port}" if self.console_port else url.netloc
        return f"{url.scheme}://{place}{self.console_path}/"

    @property
    def listens_on_loopback(self) -> bool:
        """Whether only this machine reaches the API."""
        return is_loopback(self.http_host)

    @property
    def api_names(self) -> tuple[str, ...]:
        """Names by which callers know the API, as far as settings say."""
        return (
            *self.http_hosts,
            self.http_host,
            urlsplit(self.api_url).hostname or "localhost",
        )

    @property
    def requires_authentication(self) -> bool:
        """Whether the API serves only callers that it knows."""
        if self.auth is None:
            return not self.listens_on_loopback
        return self.auth == "required"

    @property
    def signing_keys(self) -> tuple[bytes, ...]:
        """`signing_secrets`, to sign and to check with; the first signs."""
        return tuple(one.get_secret_value().encode() for one in self.signing_secrets)

    @property
    def lease_signing_keys(self) -> tuple[bytes, ...]:
        """What lease tokens are signed with; the same in every process of the API.

        An API that asks nobody who calls may do without secrets: then it is the database's
        address, which its processes share.
        """
        return self.signing_keys or (self.postgres_dsn.get_secret_value().encode(),)

    @model_validator(mode="after")
    def _check_ingest_secret(self) -> Self:
        if self.ingest_auth == "required" and not self.signing_secrets:
            msg = (
                "POP_INGEST_AUTH=required needs POP_SIGNING_SECRETS, of 32 characters or more, "
                "the same for API and ingest: without it, what the API takes is refused"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_api_secret(self) -> Self:
        if self.requires_authentication and not self.signing_secrets:
            msg = (
                "an API that asks who calls needs POP_SIGNING_SECRETS, of 32 characters or "
                "more, the same for ingest and rollup: without it, anyone could sign a lease "
                "token, and whoever writes to Kafka could speak for every customer"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_jwks_for_issuer(self) -> Self:
        if (self.jwt_issuer is None) != (self.jwt_jwks is None):
            msg = "POP_JWT_ISSUER and POP_JWT_JWKS go together: set both, or neither"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _complete_issuer(self) -> Self:
        if self.oidc_issuer is None:
            return self
        if not (self.oidc_client_id and self.oidc_redirect_url and self.jwt_issuer):
            msg = (
                "POP_OIDC_ISSUER needs POP_OIDC_CLIENT_ID, POP_OIDC_REDIRECT_URL, and "
                "POP_JWT_ISSUER with POP_JWT_JWKS, by which the API takes its tokens"
            )
            raise ValueError(msg)
        return self
