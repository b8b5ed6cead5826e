"""Settings of brokers and of clients that speak TLS, with certificates that a test's own authority has issued."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.support.certificates import Authority, Issued

PASSWORD = "open sesame"


def name_of(common_name: str, unit: str = "tests") -> x509.Name:
    """Most general first, as certificates have it."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Pessoa"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


class TlsFiles(NamedTuple):
    """The authority of a cluster and the files that it has issued."""

    folder: Path
    authority: Authority

    @property
    def trust(self) -> Path:
        """Put in place whole: a broker that starts meanwhile must not find the file empty."""
        return self.authority.write(self.folder / "authority.new").replace(self.folder / "authority.pem")

    def issue(self, common_name: str, **how: object) -> Path:
        """A PEM key store."""
        return self.vouch(common_name, **how).write(self.folder / f"{common_name}.pem")

    def vouch(self, common_name: str, **how: object) -> Issued:
        return self.authority.vouch(name_of(common_name), **how)  # type: ignore[arg-type]

    def node(self, key_store: Path) -> dict[str, str]:
        """Settings of a broker whose listeners all speak TLS; CLIENT is its listener for clients and brokers."""
        return {
            "listener.security.protocol.map": "CLIENT:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "CLIENT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }

    def java_client(self, key_store: Path | None = None, trust: Path | None = None, **more: str) -> dict[str, str]:
        """Properties of Kafka's Java clients and tools; the keywords have _ for the dots."""
        settings = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trust or self.trust),
        }
        if key_store is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
        return settings | {key.replace("_", "."): value for key, value in more.items()}

    def properties(self, name: str, settings: dict[str, str]) -> Path:
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


def librdkafka(files: TlsFiles, key_store: Path | None = None, trust: Path | None = None) -> dict[str, str]:
    """The same for confluent-kafka."""
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(trust or files.trust)}
    if key_store is not None:
        settings |= {"ssl.certificate.location": str(key_store), "ssl.key.location": str(key_store)}
    return settings
