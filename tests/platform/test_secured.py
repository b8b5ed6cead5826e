"""`pessoa up --secure` as processes: clients with the files that it writes are served, all others are refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.base.properties import read_properties
from pessoa.web.trust import tls_context
from tests.apache.broker import run_tool
from tests.apache.jars import why_no_java
from tests.platform.test_platform import TIMEOUT_S, Home, shift_of
from tests.support.clients import until

REFUSAL_S = 3.0
POLL_S = 8.0
JSON_V2 = "application/vnd.kafka.v2+json"


class Secured(Home):
    # The output of `pessoa up`.
    told = ""

    def client(self, name: str) -> Path:
        return self.folder / "secure" / "clients" / name / "client.properties"

    def settings(self, name: str) -> dict[str, str]:
        """Return the librdkafka settings of a user from its file."""
        path = self.client(name).with_name("librdkafka.properties")
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        return {"log_level": "0", **dict(line.split("=", 1) for line in lines)}

    def http(self, *users: str) -> list[httpx.Client]:
        """Return HTTP clients with the logins of these users, which trust the home's certificate authority."""
        return [self.http_of(user, self.settings(user)["sasl.password"]) for user in users]

    def http_of(self, *login: str) -> httpx.Client:
        context = tls_context(str(self.folder / "secure" / "ca.crt"))
        auth = httpx.BasicAuth(*login) if login else None
        return httpx.Client(verify=context, auth=auth, timeout=TIMEOUT_S, trust_env=False)

    def url(self, port: int, path: str = "") -> str:
        return f"https://localhost:{port + self.shift}{path}"

    def tool(self, name: str, *words: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
        """Run one of our tools with the client.properties of a user."""
        tool = Path(sys.executable).with_name(name)
        server = read_properties(self.client(user))["bootstrap.servers"]
        command = [str(tool), "--bootstrap-server", server, "--command-config", str(self.client(user)), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)

    def ok(self, *words: str) -> str:
        done = self(*words)
        assert done.returncode == 0, done
        return done.stdout


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Secured]:
    home = Secured(tmp_path_factory.mktemp("secured"), shift_of(worker_id, 3))
    try:
        home.told = home.up("--secure")
        yield home
    finally:
        home("down")


def make_topic(home: Secured) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(dict(home.settings("admin")))
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(TIMEOUT_S)
    return name


def make_user(home: Secured) -> str:
    """Add a user, wait until every broker knows it, and return its name."""
    name = f"u-{uuid.uuid4().hex[:8]}"
    home.ok("users", "add", name)
    settings = home.settings(name)
    for server in settings["bootstrap.servers"].split(","):
        AdminClient({**settings, "bootstrap.servers": server}).list_topics(timeout=TIMEOUT_S)
    return name


def is_refused(settings: dict[str, str]) -> bool:
    try:
        AdminClient(dict(settings)).list_topics(timeout=REFUSAL_S)
    except KafkaException:
        return True
    return False


def produce(settings: dict[str, str], topic: str) -> KafkaError | None:
    """Produce one record and return its error, or None."""
    results: list[KafkaError | None] = []
    producer = Producer({**settings, "acks": "all"})
    producer.produce(topic, b"x", on_delivery=lambda error, _: results.append(error))
    producer.flush(TIMEOUT_S)
    return results[0]


def consume(settings: dict[str, str], topic: str, group: str, wait_s: float = TIMEOUT_S) -> object:
    """Return the first record's value, or the name of an error; None if neither came."""
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found = consumer.poll(wait_s)
        if found is None:
            return None
        error = found.error()
        return found.value() if error is None else error.name()
    finally:
        consumer.close()


def test_a_client_produces_and_consumes_with_the_librdkafka_properties_of_the_admin(secured: Secured) -> None:
    topic = make_topic(secured)
    assert produce(secured.settings("admin"), topic) is None
    assert consume(secured.settings("admin"), topic, "admins") == b"x"


@pytest.mark.parametrize(
    "wrong",
    [
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL"},
        {"security.protocol": "SASL_PLAINTEXT"},
        {"sasl.password": "wrong"},
        {"sasl.username": "nobody"},
        {"sasl.mechanism": "PLAIN"},
    ],
    ids=lambda one: "-".join(one.values()),
)
def test_a_client_with_a_wrong_protocol_login_or_mechanism_is_refused(secured: Secured, wrong: dict[str, str]) -> None:
    admin = AdminClient({**secured.settings("admin"), **wrong})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=REFUSAL_S)


def test_a_client_without_the_homes_certificate_authority_does_not_connect(secured: Secured) -> None:
    settings = {key: text for key, text in secured.settings("admin").items() if key != "ssl.ca.location"}
    with pytest.raises(KafkaException):
        AdminClient(dict(settings)).list_topics(timeout=REFUSAL_S)


def test_the_controllers_refuse_plaintext_clients_and_the_users_of_the_brokers(secured: Secured) -> None:
    controller = f"127.0.0.1:{9093 + secured.shift}"
    for change in ({}, {"security.protocol": "PLAINTEXT"}):
        admin = AdminClient({**secured.settings("admin"), **change, "bootstrap.servers": controller})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=REFUSAL_S)


def test_our_tools_work_with_the_client_properties_of_the_admin(secured: Secured) -> None:
    topic = make_topic(secured)
    for name in ("kafka-topics", "kafka-topics.sh"):
        done = secured.tool(name, "--list")
        assert done.returncode == 0, done
        assert topic in done.stdout.split()


@pytest.mark.skipif(why_no_java() is not None, reason="no Java")
def test_apaches_tools_work_with_the_client_properties_of_the_admin(secured: Secured) -> None:
    topic, file = make_topic(secured), secured.client("admin")
    server = ("--bootstrap-server", secured.bootstrap_servers, "--command-config", str(file))
    assert topic in run_tool("kafka-topics", *server, "--list", check=True).stdout.split()
    assert "User:schema-registry" in run_tool("kafka-acls", *server, "--list", check=True).stdout


def test_a_new_user_has_only_the_rights_that_it_is_given_later(secured: Secured) -> None:
    topic, user = make_topic(secured), make_user(secured)
    settings = secured.settings(user)
    refused = produce(settings, topic)
    assert refused is not None
    assert refused.name() == "TOPIC_AUTHORIZATION_FAILED"
    assert topic not in secured.tool("kafka-topics", "--list", user=user).stdout

    secured.ok("acls", "allow", user, "--produce", "--topic", topic)
    until(lambda: produce(settings, topic) is None, bool, "the right to produce")
    # A consumer that starts before it gets the right may check its topic again only minutes later: use a new one.
    refusals = ("GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")
    until(lambda: consume(settings, topic, f"{user}-g", POLL_S), lambda answer: answer in refusals, "a refusal")

    secured.ok("acls", "allow", user, "--consume", "--topic", topic, "--group", f"{user}-*")
    until(lambda: consume(settings, topic, f"{user}-g", POLL_S), lambda answer: answer == b"x", "the right to consume")
    shown = secured.ok("acls", "list", user).splitlines()
    assert [line.split()[:2] for line in shown[1:]] == [[user, "allowed"]] * 2

    secured.ok("acls", "deny", user, "--produce", "--topic", topic)
    until(lambda: produce(settings, topic) is not None, bool, "the denial")
    secured.ok("acls", "remove", user, "--topic", topic)
    until(lambda: topic not in secured.ok("acls", "list", user), bool, "the removal")


def test_a_user_without_rights_can_neither_list_users_nor_list_or_add_acls(secured: Secured) -> None:
    user = make_user(secured)
    config = ("--command-config", str(secured.client(user)))
    for words in (("users", "list"), ("acls", "list"), ("acls", "allow", user, "--manage", "--topic", "*")):
        done = secured(*words, *config)
        assert done.returncode == 1
        assert "administrator" in done.stderr, done


def test_a_user_is_added_only_once_gets_a_new_password_and_is_removed_with_its_acls(secured: Secured) -> None:
    user, topic = make_user(secured), make_topic(secured)
    old = secured.settings(user)
    again = secured("users", "add", user)
    assert again.returncode == 1
    assert "--replace" in again.stderr
    secured.ok("users", "add", user, "--replace")
    until(lambda: is_refused(old), bool, "the new password")
    AdminClient(dict(secured.settings(user))).list_topics(timeout=TIMEOUT_S)
    secured.ok("acls", "allow", user, "--produce", "--topic", topic)

    until(lambda: user in secured.ok("acls", "list"), bool, "the access control list")
    assert user in secured.ok("users", "list")
    secured.ok("users", "remove", user)
    until(lambda: user not in secured.ok("users", "list"), bool, "the removal of the user")
    until(lambda: user not in secured.ok("acls", "list"), bool, "the removal of the rights")
    assert not secured.client(user).exists()
    assert secured("users", "remove", user).returncode == 1


def test_a_user_logs_in_with_the_password_given_on_standard_input(secured: Secured) -> None:
    command = [sys.executable, "-m", "pessoa", "users", "add", "stdin-user", "--password-stdin"]
    environment = os.environ | {"PESSOA_HOME": str(secured.folder)}
    done = subprocess.run(command, input='quo"ted \\ word\n', capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done
    assert secured.settings("stdin-user")["sasl.password"] == 'quo"ted \\ word'
    AdminClient(dict(secured.settings("stdin-user"))).list_topics(timeout=TIMEOUT_S)
    assert secured.tool("kafka-topics", "--list", user="stdin-user").returncode == 0


SERVICES = {8081: "/subjects", 8082: "/topics", 8083: "/connectors"}


def test_services_require_https_and_a_login(secured: Secured) -> None:
    user = make_user(secured)
    [admin] = secured.http("admin")
    strangers = [secured.http_of(), secured.http_of("admin", "wrong"), secured.http_of("nobody", "x")]
    for port, path in SERVICES.items():
        assert admin.get(secured.url(port, path)).status_code == 200
        assert admin.get(secured.url(port, "/metrics")).status_code == 200
        for client in strangers:
            for closed in (path, "/metrics", "/docs"):
                refused = client.get(secured.url(port, closed))
                assert (refused.status_code, "www-authenticate" in refused.headers) == (401, True), (port, closed)
            assert client.get(secured.url(port, "/health")).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port + secured.shift}{path}", trust_env=False)
        with pytest.raises(httpx.ConnectError):
            # This client trusts only the certificate authorities of the system.
            httpx.get(secured.url(port, path), trust_env=False)
    # Connectors run with the rights of the platform's account, so Connect requires more than a login.
    [client] = secured.http(user)
    assert [client.get(secured.url(port, path)).status_code for port, path in SERVICES.items()] == [200, 200, 403]


def test_metrics_of_a_broker_are_shown_only_to_users_with_the_right_to_describe_the_cluster(secured: Secured) -> None:
    user = make_user(secured)
    admin, other = secured.http("admin", user)
    for port in (9404, 9405, 9406):
        assert "kafka_server_" in admin.get(secured.url(port, "/metrics")).text
        assert secured.http_of().get(secured.url(port, "/health")).json()["status"] == "ok"
        for client in (secured.http_of(), secured.http_of("admin", "wrong")):
            assert client.get(secured.url(port, "/metrics")).status_code == 401
        assert other.get(secured.url(port, "/metrics")).status_code == 403
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port + secured.shift}/metrics", trust_env=False)


def test_two_users_of_the_rest_proxy_have_only_their_own_rights(secured: Secured) -> None:
    topic, writer, reader = make_topic(secured), make_user(secured), make_user(secured)
    secured.ok("acls", "allow", writer, "--produce", "--topic", topic)
    secured.ok("acls", "allow", reader, "--consume", "--topic", topic, "--group", "readers")
    writing, reading = secured.http(writer, reader)
    records = {"records": [{"value": 1}]}
    produce_url = secured.url(8082, f"/topics/{topic}")
    media = {"Content-Type": "application/vnd.kafka.json.v2+json", "Accept": "application/vnd.kafka.v2+json"}

    def produced(client: httpx.Client) -> tuple[int, object]:
        answer = client.post(produce_url, json=records, headers=media)
        body = answer.json()
        return answer.status_code, body.get("error_code") or body["offsets"][0]["error_code"]

    until(lambda: produced(writing), lambda answer: answer == (200, None), "the right to produce")
    until(lambda: produced(reading), lambda answer: answer == (403, 40301), "the refusal")
    until(lambda: writing.get(secured.url(8082, "/topics")).json(), lambda names: names == [topic], "its topic alone")
    # A consumer that starts before it gets the right may check its topic again only minutes later: use a new one.
    until(lambda: read_by_rest(reading, secured, topic), lambda values: 1 in values, "the right to consume")

    instance = make_instance(reading, secured, topic)
    for path in ("/subscription", "/assignments"):
        assert reading.get(instance + path).status_code == 200
        assert writing.get(instance + path).status_code == 404
    assert writing.delete(instance).status_code == 404
    assert reading.delete(instance).status_code == 204
    # A right on the cluster that the user lacks is also refused through the proxy.
    topics = secured.url(8082, f"/v3/clusters/{cluster_id(writing, secured)}/topics")
    refused = writing.post(topics, json={"topic_name": "x"})
    assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)


def make_instance(client: httpx.Client, home: Secured, topic: str) -> str:
    """Create a v2 consumer instance subscribed to a topic and return its URL."""
    wanted = {"format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
    media = {"Content-Type": JSON_V2}
    made = client.post(home.url(8082, "/consumers/readers"), json=wanted, headers=media)
    assert made.status_code == 200, made.text
    instance: str = made.json()["base_uri"]
    assert client.post(f"{instance}/subscription", json={"topics": [topic]}, headers=media).status_code == 204
    return instance


def read_by_rest(client: httpx.Client, home: Secured, topic: str) -> list[object]:
    """Return the values that a new consumer instance reads within some seconds."""
    instance = make_instance(client, home, topic)
    values: list[object] = []
    try:
        for _ in range(int(POLL_S)):
            answer = client.get(f"{instance}/records", headers={"Accept": "application/vnd.kafka.json.v2+json"})
            if values or answer.status_code != 200:
                break
            values += [record["value"] for record in answer.json()]
    finally:
        client.delete(instance)
    return values


def cluster_id(client: httpx.Client, home: Secured) -> str:
    found: str = client.get(home.url(8082, "/v3/clusters")).json()["data"][0]["cluster_id"]
    return found


def test_a_user_that_was_removed_is_refused_by_the_services(secured: Secured) -> None:
    user = make_user(secured)
    [client] = secured.http(user)
    assert client.get(secured.url(8081, "/subjects")).status_code == 200
    secured.ok("users", "remove", user)
    # Services cache a login for half a minute.
    until(lambda: client.get(secured.url(8081, "/subjects")).status_code == 401, bool, "the refusal")


def test_a_flood_of_wrong_passwords_locks_out_no_user(secured: Secured) -> None:
    [admin] = secured.http("admin")
    url = secured.url(8081, "/subjects")
    assert admin.get(url).status_code == 200

    def guess(number: int) -> set[int]:
        with secured.http_of("admin", f"guess-{number}") as client:
            return {client.get(url).status_code for _ in range(3)}

    with ThreadPoolExecutor(24) as threads:
        guesses = [threads.submit(guess, number) for number in range(60)]
        assert {admin.get(url).status_code for _ in range(30)} == {200}
        # 503 if the brokers are too busy to check the login.
        assert set().union(*(one.result() for one in guesses)) <= {401, 429, 503}
    assert admin.get(url).status_code == 200


def test_services_log_in_to_each_other_and_to_the_brokers(secured: Secured) -> None:
    topic = make_topic(secured)
    [admin] = secured.http("admin")
    # The proxy registers the schema with its own login.
    body = {"value_schema": '"string"', "records": [{"value": "x"}]}
    headers = {"Content-Type": "application/vnd.kafka.avro.v2+json"}
    answer = admin.post(secured.url(8082, f"/topics/{topic}"), json=body, headers=headers)
    assert answer.json()["value_schema_id"] >= 1, answer.text
    server = read_properties(secured.client("admin"))["bootstrap.servers"]
    command = ["kafka-avro-console-consumer", "--bootstrap-server", server, "--topic", topic, "--from-beginning",
               "--max-messages", "1", "--command-config", str(secured.client("admin"))]  # fmt: skip
    tool = Path(sys.executable).with_name(command[0])
    done = subprocess.run([str(tool), *command[1:]], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout == '"x"\n', done

    connector = {"connector.class": "FileStreamSource", "file": "/nowhere", "topic": topic,
                 "value.converter": "io.confluent.connect.avro.AvroConverter"}  # fmt: skip
    stopped = {"name": "first", "config": connector, "initial_state": "STOPPED"}
    made = admin.post(secured.url(8083, "/connectors"), json=stopped)
    assert made.status_code == 201, made.text
    assert "first" in secured.confluent("status", "connectors")
    # ksql calls Connect with its caller's login: its own principal has no right to.
    listed = admin.post(secured.url(8088, "/ksql"), json={"ksql": "SHOW CONNECTORS;"})
    assert '"first"' in listed.text, listed.text


def test_the_commands_that_pessoa_up_prints_work(secured: Secured) -> None:
    told = secured.told
    line = next(line for line in told.splitlines() if line.startswith("  kafka-topics "))
    name, *words = line.split()
    done = subprocess.run([Path(sys.executable).with_name(name), *words], capture_output=True, text=True)
    assert done.returncode == 0, done
    if (curl := shutil.which("curl")) is not None:
        line = next(line for line in told.splitlines() if line.startswith("  curl "))
        done = subprocess.run([curl, "-sS", "--noproxy", "*", *line.split()[1:]], capture_output=True, text=True)
        assert json.loads(done.stdout) is not None, done
    assert str(secured.client("admin").with_name("librdkafka.properties")) in told
    assert secured("status").returncode == 0


def test_the_demo_writes_to_a_secured_cluster_and_fails_for_a_user_without_rights(secured: Secured) -> None:
    assert "orders" in secured.ok("demo", "--events", "30")
    user = make_user(secured)
    refused = secured("demo", "--events", "30", "--command-config", str(secured.client(user)))
    assert refused.returncode == 1
    assert "authorised" in refused.stderr, refused


def test_no_password_is_in_logs_command_lines_environments_or_the_output_of_pessoa_up(secured: Secured) -> None:
    clients = secured.folder / "secure" / "clients"
    passwords = [secured.settings(path.parent.name)["sasl.password"] for path in clients.glob("*/client.properties")]
    assert len(passwords) >= 6
    texts = [path.read_text(errors="replace") for path in (secured.folder / "logs").rglob("*") if path.is_file()]
    texts += [secured.told, (secured.folder / "run.json").read_text()]
    for service in secured.run_file()["services"]:
        texts.append(Path(f"/proc/{service['pid']}/cmdline").read_text())
        texts.append(Path(f"/proc/{service['pid']}/environ").read_text(errors="replace"))
    assert not [password for password in passwords for text in texts if password in text]


def test_a_home_stays_secured_and_keeps_its_passwords_users_and_data(tmp_path: Path, worker_id: str) -> None:
    home = Secured(tmp_path, shift_of(worker_id, 0))
    try:
        # First an unsecured cluster, which is then secured.
        home.up("--brokers", "1", "--services", "none")
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{9092 + home.shift}", "log_level": 0})
        producer.produce("kept", b"x")
        assert producer.flush(TIMEOUT_S) == 0
        home.ok("down")

        home.up("--secure", "--services", "none")
        before = home.settings("admin")
        home.ok("users", "add", "ana")
        home.ok("down")

        home.up("--services", "none")
        assert home.settings("admin") == {**before, "bootstrap.servers": f"127.0.0.1:{9092 + home.shift}"}
        assert consume(home.settings("admin"), "kept", "g") == b"x"
        AdminClient(dict(home.settings("ana"))).list_topics(timeout=TIMEOUT_S)
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": before["bootstrap.servers"], "log_level": 0}).list_topics(
                timeout=REFUSAL_S
            )
    finally:
        home("down")
