"""Settings of brokers and clients with TLS, with certificates of a test's own authority."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.support.certificates import Authority, Issued

PASSWORD = "open sesame"


def name_of(common_name: str, unit: str = "tests") -> x509.Name:
    """Return a distinguished name in the order of certificates: organisation, unit, common name."""
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
        """Write the PEM trust store and return its path. It is renamed into place, so that no broker reads an empty
        file."""
        return self.authority.write(self.folder / "authority.new").replace(self.folder / "authority.pem")

    def issue(self, common_name: str, **how: object) -> Path:
        """Write a PEM key store with a new key and its certificate; return its path."""
        return self.certify(common_name, **how).write(self.folder / f"{common_name}.pem")

    def certify(self, common_name: str, **how: object) -> Issued:
        return self.authority.certify(name_of(common_name), **how)  # type: ignore[arg-type]

    def node(self, key_store: Path) -> dict[str, str]:
        """Return settings of a broker with TLS on all listeners; CLIENT is its listener for clients and brokers."""
        return {
            "listener.security.protocol.map": "CLIENT:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "CLIENT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }

    def java_client(self, key_store: Path | None = None, trust: Path | None = None, **more: str) -> dict[str, str]:
        """Return properties of Kafka's Java clients and tools; keyword arguments have underscores for dots."""
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
    """Return the TLS settings of confluent-kafka (librdkafka)."""
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(trust or files.trust)}
    if key_store is not None:
        settings |= {"ssl.certificate.location": str(key_store), "ssl.key.location": str(key_store)}
    return settings
