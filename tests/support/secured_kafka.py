"""A real broker that is reached by TLS and a password, beside a port without."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from pop_stream.clock import WallClock
from pop_stream.devserver import kafka
from pop_stream.devserver.folder import DataFolder
from pop_stream.devserver.jars import default_cache, kafka_jars
from pop_stream.devserver.jvm import Jvm
from pop_stream.devserver.kafka import broker_properties
from pop_stream.devserver.process import Launch, run_to_end

MECHANISM = "SCRAM-SHA-512"
USER = "pop"


class SecuredBroker(NamedTuple):
    """How it is reached."""

    bootstrap: str
    user: str
    password: str
    ca_file: Path


@asynccontextmanager
async def secured_kafka(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SecuredBroker]:
    """The broker, which knows one user."""
    ca_file, key_store = _certificates(folder)
    with DataFolder(folder / "data") as data:
        [node] = (cluster := kafka.plan_cluster(data, 1)).nodes
        bootstrap = f"127.0.0.1:{data.port('kafka-secured')}"
        plain = broker_properties(node, cluster)
        secured = {
            "listeners": f"{plain['listeners']},SECURED://{bootstrap}",
            "advertised.listeners": f"{plain['listeners']},SECURED://{bootstrap}",
            "listener.security.protocol.map": (
                f"{plain['listener.security.protocol.map']},SECURED:SASL_SSL"
            ),
            "listener.name.secured.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.secured.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.secured.ssl.keystore.type": "PEM",
            "listener.name.secured.ssl.keystore.location": str(key_store),
        }
        monkeypatch.setattr(kafka, "broker_properties", lambda *_: plain | secured)
        jvm = Jvm(kafka_jars(default_cache()))
        broker = kafka.Kafka(data, jvm, cluster=cluster, node=node)
        await broker.start()
        try:
            password = secrets.token_hex(8)
            await _add_user(jvm, broker, password)
            yield SecuredBroker(bootstrap, USER, password, ca_file)
        finally:
            await broker.stop()


async def _add_user(jvm: Jvm, broker: kafka.Kafka, password: str) -> None:
    command = jvm.command(
        "kafka.admin.ConfigCommand",
        f"--bootstrap-server={broker.bootstrap}",
        "--alter",
        f"--add-config={MECHANISM}=[password={password}]",
        "--entity-type=users",
        f"--entity-name={USER}",
    )
    await run_to_end(Launch("kafka-user", command, broker._home), limit_s=60)


def _certificates(folder: Path) -> tuple[Path, Path]:
    """An authority's certificate, and what a server at 127.0.0.1 shows, with its key."""
    now, server = WallClock().now(), ec.generate_private_key(ec.SECP256R1())
    authority, issuer = ec.generate_private_key(ec.SECP256R1()), _name("test authority")

    def certificate(
        subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_ca: bool
    ) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        )
        if is_ca:
            usage = x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                **dict.fromkeys(
                    (
                        "content_commitment",
                        "key_encipherment",
                        "data_encipherment",
                        "key_agreement",
                        "encipher_only",
                        "decipher_only",
                    ),
                    False,
                ),
            )
            builder = builder.add_extension(usage, critical=True)
        else:
            here = x509.IPAddress(IPv4Address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([here]), critical=False)
        return builder.sign(authority, SHA256()).public_bytes(Encoding.PEM)

    own = certificate(issuer, authority, is_ca=True)
    ca_file, key_store = folder / "ca.pem", folder / "server.pem"
    ca_file.write_bytes(own)
    key = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key_store.write_bytes(key + certificate(_name("kafka"), server, is_ca=False) + own)
    return ca_file, key_store


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
