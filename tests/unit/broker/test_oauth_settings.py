"""The configuration of OAUTHBEARER: the source of each key, and values that are refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.base.clock import ManualClock
from pessoa.base.config_keys.broker_keys import validate_broker_configs
from pessoa.base.config_values import ConfigProblem
from pessoa.broker.config import BrokerConfig, single_node_properties
from pessoa.broker.oauth_verifier import make_verifier, node_token
from pessoa.broker.protection import unenforced_change
from pessoa.broker.sasl_settings import inter_broker_credentials, passwords_of_nodes
from pessoa.security.jwt.json_web_tokens import BadToken
from tests.support.tokens import AUDIENCE, ISSUER, Issuer

PREFIX = "listener.name.clients.oauthbearer."
KEYS_URL = f"{PREFIX}sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL = f"{PREFIX}sasl.oauthbearer.token.endpoint.url"
ALLOWED = "pessoa.sasl.oauthbearer.allowed."
APACHE = "org.apache.kafka.common.security.oauthbearer."
HANDLER = f"{PREFIX}sasl.server.callback.handler.class"
URL = "https://issuer.test/jwks"
OAUTH = {
    "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    KEYS_URL: URL,
    f"{ALLOWED}urls": URL,
}
SCRAM_ONLY = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
ISSUED = Issuer()


def config(changes: dict[str, str], without: tuple[str, ...] = ()) -> BrokerConfig:
    settings = {name: text for name, text in {**OAUTH, **changes}.items() if name not in without}
    return BrokerConfig(single_node_properties(settings, Path("/nowhere")))


def with_file(folder: Path, **changes: str) -> BrokerConfig:
    path = ISSUED.write(folder / "jwks.json")
    named = {f"{PREFIX}sasl.oauthbearer.{name.replace('_', '.')}": text for name, text in changes.items()}
    return config({KEYS_URL: f"file:{path}", f"{ALLOWED}files": str(path), **named})


def accepts(found: BrokerConfig, token: str, now_ms: int) -> bool:
    verifier = make_verifier(found, "CLIENTS", ManualClock())
    assert verifier is not None
    try:
        verifier.verify(token, now_ms)
    except BadToken:
        return False
    return True


def test_jwks_may_come_from_an_allowed_url_or_an_allowed_file(tmp_path: Path) -> None:
    assert make_verifier(config({}), "CLIENTS", ManualClock()) is not None
    assert make_verifier(config({}), "OTHER", ManualClock()) is None
    assert make_verifier(with_file(tmp_path), "CLIENTS", ManualClock()) is not None
    # As Apache's guide has it: a property of the system, and file: URLs among the URLs.
    path = tmp_path / "jwks.json"
    as_apache = {KEYS_URL: f"file://{path}", f"org.apache.kafka.{ALLOWED[7:]}urls": f"{URL},file://{path}"}
    assert make_verifier(config(as_apache, (f"{ALLOWED}urls",)), "CLIENTS", ManualClock()) is not None


def test_an_oauth_key_for_all_listeners_applies_to_a_listener_without_its_own() -> None:
    found = config({"sasl.oauthbearer.jwks.endpoint.url": URL}, (KEYS_URL,))
    assert make_verifier(found, "CLIENTS", ManualClock()) is not None
    found = config({"listener.name.clients.sasl.oauthbearer.jwks.endpoint.url": URL}, (KEYS_URL,))
    assert make_verifier(found, "CLIENTS", ManualClock()) is not None


def test_token_validation_rules_are_read_from_the_settings(tmp_path: Path) -> None:
    now_s = int(ISSUED.claims()["exp"])  # type: ignore[call-overload]
    token = ISSUED.token(exp=now_s)
    assert accepts(with_file(tmp_path), token, now_s * 1000 + 29_000)
    assert not accepts(with_file(tmp_path, clock_skew_seconds="10"), token, now_s * 1000 + 29_000)
    for changes, is_taken in (
        ({"expected_audience": f"other,{AUDIENCE}", "expected_issuer": ISSUER}, True),
        ({"expected_audience": "other"}, False),
        ({"expected_issuer": "other"}, False),
        ({"sub_claim_name": "iss"}, True),
        ({"sub_claim_name": "nothing"}, False),
        ({"scope_claim_name": "exp"}, False),
    ):
        assert accepts(with_file(tmp_path, **changes), token, now_s * 1000) is is_taken


@pytest.mark.parametrize(
    ("changes", "without", "key", "why"),
    [
        ({}, (KEYS_URL,), KEYS_URL, "OAUTHBEARER needs it"),
        ({}, (f"{ALLOWED}urls",), KEYS_URL, f"it must be among {ALLOWED}urls"),
        ({KEYS_URL: "https://issuer.test/other"}, (), KEYS_URL, f"it must be among {ALLOWED}urls"),
        ({KEYS_URL: "file:///etc/shadow"}, (), KEYS_URL, f"it must be among {ALLOWED}files"),
        ({KEYS_URL: "/etc/shadow"}, (), KEYS_URL, "https:, http: or file:"),
        ({KEYS_URL: "jndi:ldap://x"}, (), KEYS_URL, "https:, http: or file:"),
        ({f"{PREFIX}sasl.oauthbearer.clock.skew.seconds": "x"}, (),
         f"{PREFIX}sasl.oauthbearer.clock.skew.seconds", "number"),
        ({f"{PREFIX}sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, (),
         f"{PREFIX}sasl.oauthbearer.jwks.endpoint.refresh.ms", "at least 1"),
        # What is wrong is said even where the mechanism is to be enabled later.
        ({**SCRAM_ONLY, KEYS_URL: "file:///etc/shadow"}, (), KEYS_URL, "must be among"),
        ({HANDLER: f"{APACHE}OAuthBearerUnsecuredValidatorCallbackHandler"}, (), HANDLER, "no class of Java"),
        ({HANDLER: "com.example.Mine"}, (), HANDLER, "no class of Java"),
        ({f"{PREFIX}sasl.oauthbearer.jwt.validator.class": "com.example.Mine"}, (),
         f"{PREFIX}sasl.oauthbearer.jwt.validator.class", "no class of Java"),
        ({f"{PREFIX}sasl.jaas.config": "evil.Module required;"}, (), f"{PREFIX}sasl.jaas.config", "none of"),
        ({"inter.broker.listener.name": "CLIENTS", "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}, (),
         TOKEN_URL, "file: URL of the token"),
    ],
)  # fmt: skip
def test_oauth_settings_that_could_not_work_are_refused_at_the_start(
    changes: dict[str, str], without: tuple[str, ...], key: str, why: str
) -> None:
    with pytest.raises(ConfigProblem) as refused:
        config(changes, without)
    # What a value must be is said of the key, and what a listener needs of the listener's.
    assert key.endswith(refused.value.key)
    assert why in str(refused.value)


def test_oauth_class_names_of_apaches_guide_are_accepted() -> None:
    for part in ("", "secured."):
        found = config(
            {
                HANDLER: f"{APACHE}{part}OAuthBearerValidatorCallbackHandler",
                f"{PREFIX}sasl.login.callback.handler.class": f"{APACHE}{part}OAuthBearerLoginCallbackHandler",
                f"{PREFIX}sasl.oauthbearer.jwt.validator.class": f"{APACHE}BrokerJwtValidator",
                f"{PREFIX}sasl.jaas.config": f"{APACHE}OAuthBearerLoginModule required;",
            }
        )
        assert found.unknown_keys == []
    # On a listener without a login, and with another mechanism, they would be believed in for nothing.
    for name in ("listener.name.plaintext.oauthbearer", "listener.name.clients.plain"):
        with pytest.raises(ConfigProblem, match="no class of Java"):
            config({f"{name}.sasl.server.callback.handler.class": f"{APACHE}OAuthBearerValidatorCallbackHandler"})


def test_file_that_is_no_key_set_is_refused_when_the_listener_opens(tmp_path: Path) -> None:
    found = with_file(tmp_path)
    (tmp_path / "jwks.json").write_text("{}")
    with pytest.raises(ConfigProblem, match="no key set can be read"):
        make_verifier(found, "CLIENTS", ManualClock())


# Attack 19.


@pytest.mark.parametrize(
    "name",
    [
        KEYS_URL,
        TOKEN_URL,
        "listener.name.clients.sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwks.endpoint.url",
        f"{PREFIX}sasl.oauthbearer.expected.issuer",
        f"{ALLOWED}urls",
        f"{ALLOWED}files",
        f"listener.name.clients.{ALLOWED}urls",
        f"org.apache.kafka.{ALLOWED[7:]}urls",
    ],
)
@pytest.mark.parametrize("is_default", [False, True])
def test_a_dynamic_change_of_the_accepted_token_issuers_is_refused(name: str, is_default: bool) -> None:
    changes = {name: "https://evil.test/jwks"}
    found = config({})
    problem = validate_broker_configs(changes, is_default=is_default) or unenforced_change(changes, found)
    assert problem is not None
    assert problem.is_invalid_request


def test_dynamic_overrides_of_oauth_settings_are_ignored() -> None:
    changed = config({}).with_overrides({KEYS_URL: "https://evil.test/"}, {f"{ALLOWED}urls": "https://evil.test/"})
    assert "evil" not in repr(make_verifier(changed, "CLIENTS", ManualClock()))


def test_oauthbearer_is_enabled_at_run_time_if_keys_are_configured() -> None:
    for name in ("sasl.enabled.mechanisms", "listener.name.clients.sasl.enabled.mechanisms"):
        change = {name: "SCRAM-SHA-256,OAUTHBEARER"}
        assert unenforced_change(change, config(SCRAM_ONLY)) is None
        problem = unenforced_change(change, config(SCRAM_ONLY, (KEYS_URL,)))
        assert problem is not None
        assert "jwks.endpoint.url for CLIENTS" in problem.why


# Nodes.


def test_node_presents_the_token_of_its_file_and_reads_it_each_time(tmp_path: Path) -> None:
    path = tmp_path / "node.jwt"
    path.write_text("aaa.bbb.ccc\n")
    found = config(
        {
            "inter.broker.listener.name": "CLIENTS",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            TOKEN_URL: f"file:{path}",
            f"{ALLOWED}files": str(path),
        }
    )
    credentials = inter_broker_credentials(found)
    assert credentials is not None
    assert tuple(credentials) == ("OAUTHBEARER", "", "aaa.bbb.ccc")
    assert "bbb" not in repr(credentials)
    assert passwords_of_nodes(found) == {}
    path.write_text("ddd.eee.fff")
    assert node_token(found, "CLIENTS") == "ddd.eee.fff"
    path.unlink()
    with pytest.raises(ConfigProblem, match="no token can be read"):
        node_token(found, "CLIENTS")
