"""HttpSink: records as HTTP requests, one each or in batches.

The keys are those of Aiven's connector; the names that Confluent's has for the same things are understood too. A
value goes out as text: a string as it is, anything else as JSON. 429 and 5xx are tried again, and so is a server that
does not answer; every other refusal fails the record.
"""

from __future__ import annotations

import json
import time as clock
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence

from pessoa.base.config_values import Value, at_least, one_of
from pessoa.connect.connector import SinkConnector
from pessoa.connect.converters.json_converter import PLAIN_JSON
from pessoa.connect.data import MISFITS, DataFailure, Record
from pessoa.connect.definition import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    REQUIRED,
    STRING,
    Config,
    Settings,
    Table,
    key,
)

_CONFLUENT = {
    "http.api.url": "http.url",
    "request.method": "http.method",
    "retry.on.status.codes": "pessoa.retry.statuses",
    "request.body.format": "pessoa.body.format",
    "connection.user": "pessoa.user",
    "connection.password": "pessoa.password",
}


def _url_complaint(value: Value, _: Settings) -> str | None:
    parts = urllib.parse.urlsplit(str(value))
    return None if parts.scheme in ("http", "https") and parts.netloc else "it must be an http or https URL"


class Refused(Exception):
    """The server has refused a request; `is_retriable` if it may accept the same request later."""

    def __init__(self, sentence: str, *, is_retriable: bool) -> None:
        super().__init__(sentence)
        self.is_retriable = is_retriable


class HttpSinkConnector(SinkConnector):
    NAMES = ("io.aiven.kafka.connect.http.HttpSinkConnector", "io.confluent.connect.http.HttpSinkConnector")
    CONFIG = Table(
        key("http.url", STRING, REQUIRED, _url_complaint, HIGH, "Where records go; ${topic} and ${key} are filled in.",
            group="Connection", width="LONG"),
        key("http.method", STRING, "POST", one_of("POST", "PUT", "PATCH", "DELETE"), HIGH, "The method.",
            group="Connection"),
        key("http.authorization.type", STRING, "none", one_of("none", "static", "oauth2"), HIGH,
            "How we say who we are.",
            group="Connection"),
        key("http.headers.authorization", PASSWORD, None, MEDIUM, "The Authorization header, for static.",
            group="Connection"),
        key("http.headers.content.type", STRING, None, LOW, "The Content-Type header.", group="Connection"),
        key("http.headers.additional", LIST, (), LOW, "More headers, as name:value.", group="Connection"),
        key("oauth2.access.token.url", STRING, None, HIGH, "Where tokens come from, for oauth2.", group="Connection"),
        key("oauth2.client.id", STRING, None, HIGH, "Our id there.", group="Connection"),
        key("oauth2.client.secret", PASSWORD, None, HIGH, "Our secret there.", group="Connection"),
        key("oauth2.client.scope", STRING, None, LOW, "What we want the token for.", group="Connection"),
        key("http.timeout", INT, 30, at_least(1), LOW, "How many seconds an answer may take.", group="Timeout"),
        key("batching.enabled", BOOLEAN, False, HIGH, "Whether several records make one request.", group="Batching"),
        key("batch.max.size", INT, 500, at_least(1), MEDIUM, "The most records of one request.", group="Batching"),
        key("batch.prefix", STRING, "", HIGH, "What stands before the first.", group="Batching"),
        key("batch.suffix", STRING, "\\n", HIGH, "What stands behind the last.", group="Batching"),
        key("batch.separator", STRING, "\\n", HIGH, "What stands between two.", group="Batching"),
        key("max.retries", INT, 1, at_least(0), MEDIUM, "How often a failed request is tried again.", group="Delivery"),
        key("retry.backoff.ms", INT, 3000, at_least(0), MEDIUM, "The pause before that.", group="Delivery"),
        key("pessoa.user", STRING, None, LOW, "A user for HTTP Basic.", group="Connection"),
        key("pessoa.password", PASSWORD, None, LOW, "The user's password.", group="Connection"),
        key("pessoa.body.format", STRING, "string", one_of("string", "json"), LOW,
            "Whether strings are quoted as JSON.",
            group="Connection"),
    )  # fmt: skip

    @classmethod
    def adapted(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        found = {_CONFLUENT.get(name, name): text for name, text in settings.items()}
        if "headers" in settings and "http.api.url" in settings:
            separator = settings.get("header.separator", "|")
            found["http.headers.additional"] = ",".join(settings["headers"].split(separator))
        if "http.api.url" in settings and settings.get("batch.max.size", "1").strip() != "1":
            found |= {"batching.enabled": "true", "batch.prefix": "[", "batch.suffix": "]", "batch.separator": ","}
        return found

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        kind = settings.get("http.authorization.type", "none")
        if kind == "static" and not settings.get("http.headers.authorization"):
            return {"http.headers.authorization": "it is needed with http.authorization.type=static"}
        if kind == "oauth2":
            for name in ("oauth2.access.token.url", "oauth2.client.id", "oauth2.client.secret"):
                if not settings.get(name):
                    return {name: "it is needed with http.authorization.type=oauth2"}
        return {}

    def start(self, config: Config) -> None:
        self._config = config
        self._token: str | None = None

    def put(self, records: Sequence[Record]) -> None:
        config = self._config
        if not config.boolean("batching.enabled"):
            for record, text in self._texts(records):
                self._send([record], text)
            return
        size = config.integer("batch.max.size")
        words = ("batch.prefix", "batch.separator", "batch.suffix")
        prefix, separator, suffix = (_unescape(config.string(word)) for word in words)
        written = self._texts(records)
        for first in range(0, len(written), size):
            part = written[first : first + size]
            body = prefix + separator.join(text for _, text in part) + suffix
            self._send([record for record, _ in part], body)

    def _texts(self, records: Sequence[Record]) -> list[tuple[Record, str]]:
        """Return the records that can be written as text, each with its text; the others are reported."""
        found = []
        for record in records:
            try:
                text = self._text(record)
                # A lone surrogate cannot be encoded.
                text.encode()
            except MISFITS as failure:
                self.report(record, failure)
            else:
                found.append((record, text))
        return found

    def _text(self, record: Record) -> str:
        value = record.value
        if isinstance(value, str) and self._config["pessoa.body.format"] == "string":
            return value
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        return json.dumps(PLAIN_JSON.to_json(record.value_schema, value), ensure_ascii=False, separators=(",", ":"))

    def _send(self, records: Sequence[Record], body: str) -> None:
        retries = self._config.integer("max.retries")
        while True:
            try:
                self._request(records[0], body.encode())
            except (OSError, Refused) as failure:
                if not retries or (isinstance(failure, Refused) and not failure.is_retriable):
                    for record in records:
                        self.report(record, DataFailure(f"Sending failed: {failure}"))
                    return
                retries -= 1
                clock.sleep(self._config.integer("retry.backoff.ms") / 1000)
            else:
                return

    def _request(self, record: Record, body: bytes) -> None:
        config = self._config
        url, method = config.string("http.url"), config.string("http.method")
        url = url.replace("${topic}", urllib.parse.quote(record.topic, safe=""))
        if "${key}" in url:
            url = url.replace("${key}", urllib.parse.quote(str(record.key), safe=""))
        request = urllib.request.Request(url, body, self._headers(), method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=config.integer("http.timeout")) as answer:  # noqa: S310
                answer.read()
        except urllib.error.HTTPError as refused:
            text = refused.read().decode(errors="replace")[:500]
            if refused.code == 401:
                self._token = None
            is_retriable = refused.code in (401, 429) or refused.code >= 500
            raise Refused(f"{method} {url}: {refused.code} {text}", is_retriable=is_retriable) from None

    def _headers(self) -> dict[str, str]:
        config = self._config
        headers = {"Content-Type": config.optional_string("http.headers.content.type") or "application/json"}
        for each in config.entries("http.headers.additional"):
            name, _, value = each.partition(":")
            headers[name.strip()] = value.strip()
        if config["http.authorization.type"] == "static":
            headers["Authorization"] = config.string("http.headers.authorization")
        elif config["http.authorization.type"] == "oauth2":
            headers["Authorization"] = f"Bearer {self._access_token()}"
        elif config["pessoa.user"]:
            import base64

            pair = f"{config['pessoa.user']}:{config['pessoa.password'] or ''}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return headers

    def _access_token(self) -> str:
        if self._token is None:
            config = self._config
            form = {"grant_type": "client_credentials", "client_id": config.string("oauth2.client.id"),
                    "client_secret": config.string("oauth2.client.secret")}  # fmt: skip
            scope = config.optional_string("oauth2.client.scope")
            if scope:
                form["scope"] = scope
            data = urllib.parse.urlencode(form).encode()
            url, timeout_s = config.string("oauth2.access.token.url"), config.integer("http.timeout")
            with urllib.request.urlopen(url, data, timeout_s) as answer:  # noqa: S310
                self._token = str(json.load(answer)["access_token"])
        return self._token


def _unescape(text: str) -> str:
    """Return the text with its escapes replaced: a newline at the end of a setting would be stripped as a blank."""
    return text.replace("\\n", "\n").replace("\\t", "\t")
