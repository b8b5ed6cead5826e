"""kafka-python's own integration tests, from its source distribution, against a broker of ours.

They were written against Apache Kafka, without knowledge of our broker. pip fetches the distribution once, with its
checksum, into the cache of the tests; a file that the distribution lacks (`test/service.py`, which would start
Apache Kafka) is replaced by a stand-in for a broker that runs already.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pessoa.pipelines.jars import cache_directory
from pessoa.testing import Broker

VERSION = "3.0.12"
SHA256 = "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"
FILES = ("admin", "consumer", "producer")
# As their own test servers are configured. Their one test of ACLs fails on Apache Kafka without an authorizer, too.
SETTINGS = {
    "node.id": "0",
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
}
NEEDS_AN_AUTHORIZER = "test_create_describe_delete_acls"
TIMEOUT_S = 600
SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


SpawnedService = None
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the unpacked distribution."""
    archive = cache_directory() / f"kafka_python-{VERSION}.tar.gz"
    if not archive.exists():
        download(archive)
    folder = tmp_path_factory.mktemp("kafka-python")
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):
            packed.extractall(folder, filter="data")
        else:
            # Python before 3.11.4 has no extraction filters; the archive was checked against its hash.
            packed.extractall(folder)
    root = folder / f"kafka_python-{VERSION}"
    # Without it, Python's own package `test` would be found instead.
    (root / "test" / "__init__.py").touch()
    (root / "test" / "service.py").write_text(SERVICE, encoding="ascii")
    return root


def download(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=archive.parent) as folder:
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text(f"kafka-python=={VERSION} --hash=sha256:{SHA256}\n", encoding="ascii")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run(
            [*pip, "--no-binary", "kafka-python", "--require-hashes", "-r", wanted, "-d", folder], check=True
        )
        (Path(folder) / archive.name).replace(archive)


def run_file(suite: Path, file: str, cache: Path, *more: str) -> subprocess.CompletedProcess[str]:
    with Broker(SETTINGS) as broker:
        host, port = broker.bootstrap_servers.split(":")
        return subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--timeout", "180"),
                *("-o", f"cache_dir={cache}"),
                *more,
                *("--deselect", f"test/integration/test_admin_integration.py::{NEEDS_AN_AUTHORIZER}"),
                f"test/integration/test_{file}_integration.py",
            ],
            cwd=suite,
            env={
                **os.environ,
                "KAFKA_URI": f"kafka://{host}:{port}",
                "KAFKA_VERSION": "4.3.0",
                # Where Apache Kafka would be; it only has to exist.
                "KAFKA_ROOT": str(suite),
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


@pytest.mark.parametrize("file", FILES)
@pytest.mark.filterwarnings("default:failed at first:UserWarning")
def test_kafka_pythons_own_integration_tests_pass(suite: Path, file: str, tmp_path: Path) -> None:
    run = run_file(suite, file, tmp_path)
    if run.returncode == 1:
        # Their timeouts of a few seconds cannot be changed here: tests that failed on a busy machine have to pass
        # when they are run again, and a warning names them.
        failed = json.loads((tmp_path / "v" / "cache" / "lastfailed").read_text(encoding="utf-8"))
        print(run.stdout[-6000:])
        warnings.warn(f"failed at first: {', '.join(failed)}", stacklevel=1)
        run = run_file(suite, file, tmp_path, "--last-failed", "--last-failed-no-failures", "none")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
    print(run.stdout.splitlines()[-1])
