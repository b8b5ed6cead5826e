from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from pessoa.cli.command_line import UsageError
from pessoa.cli.tool_run import read_properties, silence_listener


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# a comment\n! another\n\n  security.protocol = SSL\nsasl.mechanism:PLAIN\nclient.id mine\n"
        "long=one,\\\n     two,\\\n     three\nempty=\npath=C:\\\\data\nlines=a\\nb\\tc\nletter=\\u00e3\nodd\\ key=x\n"
        "two.backslashes=ends here\\\\\nnext=line\n"
    )
    assert read_properties(str(path)) == {
        "security.protocol": "SSL",
        "sasl.mechanism": "PLAIN",
        "client.id": "mine",
        "long": "one,two,three",
        "empty": "",
        "path": "C:\\data",
        "lines": "a\nb\tc",
        "letter": "ã",
        "odd key": "x",
        "two.backslashes": "ends here\\",
        "next": "line",
    }


def test_a_missing_properties_file_gives_one_error_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_properties(str(tmp_path / "absent"))


def test_a_malformed_properties_file_gives_one_error_line(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("password=C:\\users\n")
    with pytest.raises(UsageError, match=r"client\.properties: \\users is not a character"):
        read_properties(str(path))


AWAY = "No broker answers at {}. Trying again; `pessoa up` starts a cluster on localhost:9092."


@pytest.mark.parametrize(
    ("code", "heard", "told"),
    [
        (
            KafkaError._TRANSPORT,
            "here:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)",
            AWAY.format("here:9092: Connection refused"),
        ),
        (
            KafkaError._TRANSPORT,
            "ssl://here:9093/bootstrap: Disconnected: connection reset by peer (after 0ms in state SSL_HANDSHAKE)",
            AWAY.format("here:9093: connection reset by peer"),
        ),
        (
            KafkaError._SSL,
            "ssl://here:9093/bootstrap: SSL handshake failed: not verified (install one) (after 1ms in state SSL)",
            "here:9093 cannot be reached through TLS: SSL handshake failed: not verified (install one). Trying again.",
        ),
        (
            KafkaError._AUTHENTICATION,
            "sasl_plaintext://here:9094/2: SASL PLAIN failed: broker's supported mechanisms:  (after 2ms in AUTH)",
            "here:9094 does not let us in: SASL PLAIN failed: broker's supported mechanisms. Trying again.",
        ),
    ],
)
def test_the_error_without_a_usable_broker_names_its_address_and_the_reason(
    code: int, heard: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    listen = silence_listener()
    listen(KafkaError(code, heard))
    listen(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert capsys.readouterr().err == f"WARN {told}\n"
