"""The name in a certificate as Java formats it, and the principal from the mapping rules."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from pessoa.base.config_values import ConfigProblem
from pessoa.security.tls.distinguished_name import subject_of
from pessoa.security.tls.principal_mapping import NoMatchingRule, PrincipalMapping
from tests.support.certificates import Authority

_PRINT_NAMES = """
import java.io.FileInputStream;
import java.security.cert.*;
public class Names {
    public static void main(String[] files) throws Exception {
        var out = new java.io.PrintStream(System.out, true, "UTF-8");
        for (String file : files) {
            var read = CertificateFactory.getInstance("X.509").generateCertificate(new FileInputStream(file));
            out.println(((X509Certificate) read).getSubjectX500Principal().getName());
        }
    }
}
"""


def name(*pairs: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in pairs])


NAMES = [
    name((NameOID.COUNTRY_NAME, "PT"), (NameOID.ORGANIZATION_NAME, "Pessoa"), (NameOID.COMMON_NAME, "broker-1")),
    name((NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')),
    name((NameOID.COMMON_NAME, "  two blanks around  ")),
    name((NameOID.COMMON_NAME, "#hash")),
    name((NameOID.COMMON_NAME, "Álvaro de Campos 詩")),
    name((NameOID.EMAIL_ADDRESS, "ana@example.org"), (NameOID.COMMON_NAME, "ana")),
    name((NameOID.SERIAL_NUMBER, "4711"), (NameOID.COMMON_NAME, "n"), (NameOID.USER_ID, "u1")),
    name((NameOID.DOMAIN_COMPONENT, "org"), (NameOID.DOMAIN_COMPONENT, "example"), (NameOID.STREET_ADDRESS, "Rua 1")),
    name((NameOID.STATE_OR_PROVINCE_NAME, "Lisboa"), (NameOID.LOCALITY_NAME, "Chiado"), (NameOID.COMMON_NAME, "x")),
    x509.Name([x509.RelativeDistinguishedName([
        x509.NameAttribute(NameOID.COMMON_NAME, "both"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "at once"),
    ])]),
    x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "wide é", _type=_ASN1Type.BMPString)]),
]  # fmt: skip


def test_distinguished_names_are_rendered_as_by_java(tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("there is no Java compiler")
    authority = Authority("authority")
    files = []
    for number, one in enumerate(NAMES):
        files.append(tmp_path / f"{number}.der")
        files[-1].write_bytes(authority.certify(one).certificate.public_bytes(Encoding.DER))
    source = tmp_path / "Names.java"
    source.write_text(_PRINT_NAMES)
    printed = subprocess.run(["java", source, *files], check=True, capture_output=True, encoding="utf-8")
    assert [subject_of(file.read_bytes()) for file in files] == printed.stdout.split("\n")[:-1]


def test_the_usual_distinguished_name_is_rendered_in_reverse_order_without_blanks() -> None:
    issued = Authority("authority").certify(NAMES[0])
    assert subject_of(issued.certificate.public_bytes(Encoding.DER)) == "CN=broker-1,O=Pessoa,C=PT"


# From KIP-371 and Kafka's documentation of the setting.
KAFKAS_RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("distinguished_name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_principal_mapping_rule_that_matches_the_whole_name_applies(
    distinguished_name: str, principal: str
) -> None:
    assert PrincipalMapping(KAFKAS_RULES).name_of(distinguished_name) == principal


@pytest.mark.parametrize(
    ("rules", "distinguished_name", "principal"),
    [
        ("DEFAULT", "CN=a", "CN=a"),
        ("", "CN=a", None),
        ("RULE:CN=(.*)/$1/", "CN=a,O=b", "a,O=b"),
        ("RULE:CN=a/b/", "CN=a,O=b", None),
        (r"RULE:CN=(\w+)\/(\w+)/$2/", "CN=a/b", "b"),
        ("RULE:CN=(?<who>.*)/${who}!/", "CN=a", "a!"),
        ("RULE:CN=(.*)/$1$2/", "CN=a", "a$2"),
        (r"RULE:CN=(.*)/\$1/", "CN=a", "$1"),
        ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
        ("RULE:CN=x/y/,RULE:CN=(.*)/$1/L", "CN=A", "a"),
    ],
)
def test_principal_mapping_rules_are_applied_as_by_apache_kafka(
    rules: str, distinguished_name: str, principal: str | None
) -> None:
    mapping = PrincipalMapping(rules)
    if principal is None:
        with pytest.raises(NoMatchingRule):
            mapping.name_of(distinguished_name)
    else:
        assert mapping.name_of(distinguished_name) == principal


@pytest.mark.parametrize("rules", ["nonsense", "RULE:a", "RULE:a/b", "RULE:(/b/", "RULE:a/b/X", "DEFAULT DEFAULT"])
def test_an_invalid_principal_mapping_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigProblem, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)
