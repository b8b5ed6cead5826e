"""Key and trust stores in every format, and the errors for damaged ones."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from pessoa.base.config_values import ConfigProblem
from pessoa.security.tls.settings import TlsSettings
from pessoa.security.tls.stores import read_key_store, read_trust_store
from tests.support.certificates import Authority

SECRET = "open sesame"
OTHER = "another secret"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("the authority of a test")


def test_pem_key_store_is_read_from_the_settings_and_from_a_file(authority: Authority, tmp_path: Path) -> None:
    issued = authority.certify("broker-1")
    inline = TlsSettings(keystore_type="PEM", keystore_key=issued.key_pem(),
                         keystore_certificate_chain=issued.chain_pem + authority.pem)  # fmt: skip
    path = issued.write(tmp_path / "store.pem")
    for settings in (inline, TlsSettings(keystore_type="PEM", keystore_location=str(path))):
        store = read_key_store(settings)
        assert store is not None
        assert store.certificate == issued.certificate
    chained = read_key_store(inline)
    assert chained is not None
    assert chained.chain == (issued.certificate, authority.certificate)


def test_an_encrypted_pem_key_needs_its_password(authority: Authority, tmp_path: Path) -> None:
    path = str(authority.certify("broker-1").write(tmp_path / "store.pem", SECRET))
    assert read_key_store(TlsSettings(keystore_type="PEM", keystore_location=path, key_password=SECRET)) is not None
    with pytest.raises(ConfigProblem, match=r"ssl\.key\.password: the private key is encrypted"):
        read_key_store(TlsSettings(keystore_type="PEM", keystore_location=path))
    with pytest.raises(ConfigProblem, match="password of the private key is wrong") as caught:
        read_key_store(TlsSettings(keystore_type="PEM", keystore_location=path, key_password=OTHER))
    assert path in str(caught.value)
    assert OTHER not in str(caught.value)


@pytest.mark.parametrize("declared", ["PKCS12", "JKS", "pkcs12"])
def test_a_pkcs12_store_is_read_with_any_configured_store_type(
    authority: Authority, tmp_path: Path, declared: str
) -> None:
    issued = authority.certify("broker-1")
    path = issued.write_pkcs12(tmp_path / "store.jks", SECRET, authority)
    store = read_key_store(TlsSettings(keystore_type=declared, keystore_location=str(path), keystore_password=SECRET))
    assert store is not None
    assert store.chain == (issued.certificate, authority.certificate)


def keytool(*arguments: str) -> None:
    if shutil.which("keytool") is None:
        pytest.skip("there is no keytool")
    subprocess.run(["keytool", *arguments, "-noprompt"], check=True, capture_output=True)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("algorithm", ["RSA", "EC"])
def test_stores_that_keytool_writes_are_read(tmp_path: Path, kind: str, algorithm: str) -> None:
    path = tmp_path / "store.jks"
    key_password = OTHER if kind == "JKS" else SECRET
    keytool("-genkeypair", "-alias", "own", "-keyalg", algorithm, "-dname", "CN=broker-1,O=Pessoa", "-storetype", kind,
            "-keystore", str(path), "-storepass", SECRET, "-keypass", key_password)  # fmt: skip
    settings = TlsSettings(keystore_location=str(path), keystore_password=SECRET, key_password=key_password)
    store = read_key_store(settings)
    assert store is not None
    assert store.certificate.subject.rfc4514_string() == "CN=broker-1,O=Pessoa"
    with pytest.raises(ConfigProblem, match="password") as caught:
        read_key_store(TlsSettings(keystore_location=str(path), keystore_password="wrong one"))
    assert "wrong one" not in str(caught.value)
    with pytest.raises(ConfigProblem, match="no trusted certificate"):
        read_trust_store(TlsSettings(truststore_location=str(path), truststore_password=SECRET))


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_trust_stores_that_keytool_writes_are_read(authority: Authority, tmp_path: Path, kind: str) -> None:
    path, foreign = tmp_path / "trust.jks", Authority("another")
    for alias, one in (("first", authority), ("second", foreign)):
        keytool("-importcert", "-alias", alias, "-file", str(one.write(tmp_path / "ca.pem")), "-storetype", kind,
                "-keystore", str(path), "-storepass", SECRET)  # fmt: skip
    trust = read_trust_store(TlsSettings(truststore_location=str(path), truststore_password=SECRET))
    assert trust is not None
    assert {*trust.certificates} == {authority.certificate, foreign.certificate}
    if kind == "JKS":
        # Java does not ask for the password of a JKS trust store either.
        assert read_trust_store(TlsSettings(truststore_location=str(path))) == trust


def test_a_truncated_or_altered_jks_store_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "store.jks"
    keytool("-genkeypair", "-alias", "own", "-keyalg", "EC", "-dname", "CN=a", "-storetype", "JKS",
            "-keystore", str(path), "-storepass", SECRET)  # fmt: skip
    whole = path.read_bytes()
    settings = TlsSettings(keystore_location=str(path), keystore_password=SECRET)
    for damaged in (whole[:30], whole[:-1], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        path.write_bytes(damaged)
        with pytest.raises(ConfigProblem, match="damaged"):
            read_key_store(settings)
    for size in range(5, len(whole), 7):
        path.write_bytes(whole[:size])
        # Without a password nothing but the structure is looked at.
        with pytest.raises(ConfigProblem):
            read_trust_store(TlsSettings(truststore_location=str(path)))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (TlsSettings(keystore_location="/nowhere/store.jks", keystore_password=SECRET), "cannot be read: No such file"),
        (TlsSettings(keystore_type="BKS", keystore_location="x"), r"ssl\.keystore\.type=BKS"),
        (TlsSettings(keystore_location="/nowhere", keystore_key="x"), r"set ssl\.keystore\.type=PEM"),
        (TlsSettings(keystore_type="PEM", keystore_key="x"), r"ssl\.keystore\.certificate\.chain"),
        (TlsSettings(keystore_type="PEM", keystore_location="x", keystore_password=SECRET), r"ssl\.key\.password"),
    ],
)
def test_a_wrong_key_store_setting_is_named_without_secrets(settings: TlsSettings, says: str) -> None:
    with pytest.raises(ConfigProblem, match=says) as caught:
        read_key_store(settings)
    assert SECRET not in f"{caught.value}{settings!r}"


def test_a_key_without_its_certificate_is_refused(authority: Authority) -> None:
    one, other = authority.certify("one"), authority.certify("other")
    settings = TlsSettings(keystore_type="PEM", keystore_key=one.key_pem(), keystore_certificate_chain=other.chain_pem)
    with pytest.raises(ConfigProblem, match="no certificate in it belongs to its private key"):
        read_key_store(settings)


def test_a_pem_file_configured_as_jks_gets_a_hint(authority: Authority, tmp_path: Path) -> None:
    path = str(authority.certify("one").write(tmp_path / "one.pem"))
    with pytest.raises(ConfigProblem, match="set the type to PEM"):
        read_key_store(TlsSettings(keystore_location=path, keystore_password=SECRET))


def test_no_secret_is_in_the_repr_of_settings_and_stores(authority: Authority) -> None:
    key = rsa.generate_private_key(65537, 2048)
    issued = authority.certify("one", key=key)
    settings = TlsSettings(
        keystore_type="PEM", keystore_key=issued.key_pem(), keystore_certificate_chain=issued.chain_pem,
        keystore_password=SECRET, key_password=OTHER, truststore_password="a third",
    )  # fmt: skip
    store = read_key_store(settings)
    shown = f"{settings!r} {store!r}"
    assert "CN=one" in shown
    for secret in (SECRET, OTHER, "a third", "BEGIN"):
        assert secret not in shown


def test_tls_settings_of_a_listener_override_those_for_all_listeners() -> None:
    values = {
        "ssl.keystore.location": "all.jks",
        "ssl.client.auth": "none",
        "listener.name.internal.ssl.keystore.location": "internal.jks",
    }
    assert TlsSettings.of(values, "INTERNAL").keystore_location == "internal.jks"
    assert TlsSettings.of(values, "EXTERNAL").keystore_location == "all.jks"
    assert TlsSettings.of(values).keystore_location == "all.jks"
