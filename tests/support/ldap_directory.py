"""OpenLDAP's server with a few users and groups, for one test.

Debian's package is used where it is installed; elsewhere on Debian it is fetched once into build/ and unpacked there,
so that no daemon of the system starts. The test is skipped where neither works.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.logged_process import LoggedProcess

FOLDER = Path(__file__).parents[2] / "build" / "slapd"
PACKAGES = ("slapd", "libltdl7", "libodbc2")
SUFFIX = "dc=pessoa,dc=pt"
DEADLINE_S = 30
LDIF = f"""\
dn: {SUFFIX}
objectClass: dcObject
objectClass: organization
dc: pessoa
o: Pessoa

dn: ou=people,{SUFFIX}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{SUFFIX}
objectClass: organizationalUnit
ou: groups

dn: uid=ada,ou=people,{SUFFIX}
objectClass: inetOrgPerson
uid: ada
cn: Ada
sn: Lovelace
userPassword: secret

dn: uid=ruy,ou=people,{SUFFIX}
objectClass: inetOrgPerson
uid: ruy
cn: Ruy
sn: Belo
userPassword: também secreto

dn: cn=operators,ou=groups,{SUFFIX}
objectClass: groupOfNames
cn: operators
member: uid=ada,ou=people,{SUFFIX}
"""


@contextmanager
def ldap_directory(folder: Path, certificate: Path | None = None) -> Iterator[str]:
    """Start an LDAP server and yield its URL; `cn=admin,SUFFIX` with the password `admin` may read everything. With a
    certificate (and its key in the same file) the URL is an ldaps:// one."""
    root = _installed()
    config = folder / "slapd.conf"
    data = folder / "data"
    data.mkdir()
    schemas = "".join(
        f"include {root / 'etc/ldap/schema'}/{name}.schema\n" for name in ("core", "cosine", "inetorgperson")
    )
    tls = f"TLSCertificateFile {certificate}\nTLSCertificateKeyFile {certificate}\n" if certificate else ""
    config.write_text(
        f"{schemas}{tls}modulepath {root / 'usr/lib/ldap'}\nmoduleload back_mdb\npidfile {folder}/slapd.pid\n"
        f"database mdb\nmaxsize 16777216\nsuffix {SUFFIX}\nrootdn cn=admin,{SUFFIX}\nrootpw admin\n"
        f"directory {data}\n"
    )
    (folder / "users.ldif").write_text(LDIF)
    environment = {"LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu")}
    program = str(root / "usr/sbin/slapd")
    command = [program, "-T", "add", "-f", str(config), "-l", str(folder / "users.ldif")]
    subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, timeout=DEADLINE_S)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"{'ldaps' if certificate else 'ldap'}://127.0.0.1:{port}"
    # With -d it stays in the foreground.
    command = [program, "-h", url, "-f", str(config), "-d", "0"]
    with LoggedProcess(command, folder / "slapd.log", name="slapd", env=environment) as running:
        _wait_until_listening(port, running)
        yield url


def _installed() -> Path:
    """Return the root folder of the server, its modules and its schemas."""
    if Path("/usr/sbin/slapd").exists():
        return Path("/")
    root = FOLDER / "root"
    if (root / "usr/sbin/slapd").exists():
        return root
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("OpenLDAP's slapd is not installed, so logins with a directory are not tested")
    FOLDER.mkdir(parents=True, exist_ok=True)
    fetched = subprocess.run(
        ["apt-get", "download", *PACKAGES], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    archives = list(FOLDER.glob("*.deb"))
    if fetched.returncode != 0 or len(archives) < len(PACKAGES):
        pytest.skip(f"slapd cannot be fetched, so logins with a directory are not tested: {fetched.stderr[-200:]}")
    for archive in archives:
        subprocess.run(["dpkg", "-x", str(archive), str(root)], check=True, timeout=DEADLINE_S)
    return root


def _wait_until_listening(port: int, running: LoggedProcess) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        assert running.is_running, f"slapd ended:\n{running.said}"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "slapd does not listen"
            time.sleep(0.02)
        else:
            return
