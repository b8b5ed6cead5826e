"""The control centre without a browser: everything that pages and the API ask for, and what happens by itself.

Reads return values of views.py. What changes something takes the `Person` who wants it, checks the role, and notes it
in the audit log whether it works or not (`_change`). The sampler runs while the service does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from pessoa.base.clock import SystemClock
from pessoa.client.acl_admin import Entry as AclEntry
from pessoa.client.acl_admin import Pattern, create_acls, delete_acls, describe_acls
from pessoa.client.cluster_client import Cluster
from pessoa.client.config_admin import Change, Operation, ResourceType, alter_configs, describe_configs
from pessoa.client.group_admin import commit_offsets, delete_group
from pessoa.client.quota_admin import (
    Credential,
    Entity,
    Match,
    Mechanism,
    alter_credentials,
    alter_quotas,
    describe_credentials,
    describe_quotas,
)
from pessoa.client.reassignment_admin import alter_reassignments
from pessoa.client.registry_client import RegistryClient
from pessoa.client.topic_admin import NewTopic, create_partitions, create_topic, delete_topics
from pessoa.control_center.accounts import Accounts, Person, demand
from pessoa.control_center.alerts import AlertBook, Facts, evaluate, send_to_webhooks
from pessoa.control_center.audit_trail import AuditLog
from pessoa.control_center.center_config import Config, glue_schemas, ldap_settings, registry_settings
from pessoa.control_center.cluster_watch import ClusterWatch
from pessoa.control_center.config_rows import config_rows
from pessoa.control_center.group_details import forget_share_topic, group_details, reset_share_offsets
from pessoa.control_center.kafka_link import KafkaLink
from pessoa.control_center.ldap_login import LdapDirectory
from pessoa.control_center.limits import parse_limits
from pessoa.control_center.masking import parse_masks, paths_for
from pessoa.control_center.message_decoding import Decoder
from pessoa.control_center.message_reading import MAX_LIMIT, MessageQuery, Scan, plan_ranges
from pessoa.control_center.metrics_pages import MetricsPages
from pessoa.control_center.offset_reset import BadReset, ResetRow, plan_reset, why_not
from pessoa.control_center.oidc_login import OidcLogin, Provider
from pessoa.control_center.own_serdes import SerdeFailed
from pessoa.control_center.replica_plan import BadReplication, plan_replicas
from pessoa.control_center.service_links import RegistryLink, ServiceLink, Services
from pessoa.control_center.stored_state import StateFile
from pessoa.control_center.texts import Text
from pessoa.control_center.topic_analysis import AnalysisScan
from pessoa.control_center.topic_copy import CopyScan
from pessoa.control_center.views import ClusterRow, ConfigRow, GroupView, OffsetRow, Overview
from pessoa.web.auth import Authenticator, BearerAuth, read_users
from pessoa.web.kafka_users import KafkaUsers
from pessoa.web.problems import HttpProblem
from pessoa.web.trust import tls_context

log = logging.getLogger(__name__)
T = TypeVar("T")
S = TypeVar("S", bound=Scan)

WATCHED_S = 2.0
UNWATCHED_S = 30.0
# An open page calls `look` at least this often.
LOOK_S = 6.0
SCRAM_ITERATIONS = 8192
# Each has a thread and a consumer of its own.
MAX_SCANS = 32


class Center:
    def __init__(self, config: Config, first: Center | None = None) -> None:
        """`first` is the centre of the first cluster; all clusters share its users, filters, rules and audit log."""
        self.config = config
        self.link = KafkaLink(config.bootstrap_servers, config.client)
        self.watch = ClusterWatch(self.link)
        self.alerts = AlertBook()
        self.metrics = MetricsPages(config.metrics_urls, self._metrics_port)
        if first is None:
            directory = None if config.data_dir is None else Path(config.data_dir)
            self.state, self.audit = StateFile(directory), AuditLog(directory)
            users = read_users(config.http.users_file) if config.http.users_file else {}
            directory_of_users = _directory(config)
            self.authenticator = _authenticator(config, directory_of_users)
            named = {**dict.fromkeys(config.editors, "editor"), **dict.fromkeys(config.admins, "admin")}
            role_of = None if directory_of_users is None else directory_of_users.role_of
            self.accounts = Accounts(self.authenticator, users, config.role, config.idle_ms / 1000, named, role_of,
                                     has_proxy=bool(config.proxy_user_header))  # fmt: skip
            self.oidc = _oidc(config)
            self._scans: list[Scan] = []
            self.clusters: dict[str, Center] = {config.name: self}
            self.clusters |= {name: Center(one, self) for name, one in config.further.items()}
        else:
            self.state, self.audit = first.state, first.audit.of_cluster(config.name)
            self.authenticator, self.accounts, self.oidc = first.authenticator, first.accounts, first.oidc
            self.clusters, self._scans = first.clusters, first._scans
        self.services = _services(config)
        self.decoder = Decoder(
            RegistryClient(registry_settings(config)) if config.registry_url else None, config.own_serdes,
            glue_schemas(config, os.environ),
        )  # fmt: skip
        self.limits = parse_limits(config.limits)
        self._looked_at_s = float("-inf")
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Center of {self.link!r}>"

    def of_cluster(self, name: str | None) -> Center:
        """Return the centre of a cluster; this one without a name. 404 for an unknown name."""
        if not name:
            return self
        found = self.clusters.get(name)
        if found is None:
            raise HttpProblem(404, f"There is no cluster {name}: there are {', '.join(self.clusters)}.", 40404)
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sample all clusters while the block runs; close their clients at its end."""
        async with AsyncExitStack() as stack:
            stack.callback(self.audit.close)
            for one in self.clusters.values():
                await stack.enter_async_context(one._sample_in_background())
            yield

    @asynccontextmanager
    async def _sample_in_background(self) -> AsyncIterator[None]:
        sampler = asyncio.create_task(self._sample_for_ever())
        try:
            yield
        finally:
            sampler.cancel()
            await asyncio.gather(sampler, return_exceptions=True)
            await self.services.close()
            await self.metrics.close()
            await asyncio.to_thread(self.link.close)

    async def _metrics_port(self, broker: int) -> int | None:
        """Return the port on which one of our brokers serves /metrics; None for Apache's, or if it serves none."""
        resource = (ResourceType.BROKER, str(broker))
        try:
            found = await self.link.ask(lambda cluster: describe_configs(cluster, [resource]))
        except HttpProblem:
            return None
        value = next((one.value for one in found[resource] if one.name == "pessoa.metrics.port"), None)
        return int(value) if value and value.isdigit() else None

    # What happens by itself.

    def look(self) -> None:
        """Note that a page is open, so that samples are taken often."""
        if time.monotonic() - self._looked_at_s > LOOK_S:
            self._wake.set()
        self._looked_at_s = time.monotonic()

    async def _sample_for_ever(self) -> None:
        while True:
            try:
                await self.watch.sample()
                await self.check_alerts()
            except HttpProblem as problem:
                # Brokers that do not answer: the pages report that themselves.
                log.debug("no sample: %s", problem.message)
            except Exception:
                log.exception("a sample could not be taken")
            is_watched = time.monotonic() - self._looked_at_s < LOOK_S
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), WATCHED_S if is_watched else UNWATCHED_S)
            except TimeoutError:
                continue

    async def check_alerts(self) -> None:
        image, sizes = await self.watch.image(), await self.watch.sizes()
        states = list(image.partition_states())
        lags = {name: sum(parts.values()) for name, parts in (await self.watch.group_lags()).items()}
        disks = {
            broker: max(100 * (1 - one.usable / one.total) for one in found if one.total and one.usable is not None)
            for broker, found in sizes.directories.items()
            if any(one.total and one.usable is not None for one in found)
        }
        facts = Facts(lags, sum(len(one.isr) < len(one.replicas) for one in states),
                      sum(one.leader < 0 for one in states), disks)  # fmt: skip
        rules = self.state.stored.rules
        changes = self.alerts.note(evaluate(rules, facts), int(time.time() * 1000))
        if changes:
            await send_to_webhooks(rules, changes)

    # Reading.

    async def overview(self, t: Text) -> Overview:
        image = await self.watch.image()
        health = await self.watch.health(t)
        traffic, groups, services = await asyncio.gather(
            self.metrics.traffic(image.nodes.nodes), self.watch.groups(), self.services.states()
        )
        brokers = await self.watch.brokers(traffic)
        states = list(image.partition_states())
        history = self.watch.history
        lag = history.last("lag")
        return Overview(
            image.nodes.cluster_id, image.nodes.controller_id, str(health), health.level.value, brokers,
            len(image.topics), len(states), sum(len(one.isr) < len(one.replicas) for one in states),
            sum(one.leader < 0 for one in states), len(groups), history.last("in"), history.last("out"),
            None if lag is None else int(lag), sum(one.disk_bytes or 0 for one in brokers),
            services, self.metrics.is_ours,
        )  # fmt: skip

    async def configs(self, kind: ResourceType, name: str) -> list[ConfigRow]:
        return await self.link.ask(lambda cluster: config_rows(cluster, kind, name))

    async def group(self, name: str) -> GroupView:
        remembered = (await self.watch.groups(0.5)).get(name) or (await self.watch.groups(0.0)).get(name)
        if remembered is None:
            raise HttpProblem(404, f"There is no group {name}.", 40403)
        kind = (remembered.listing.kind or "classic").lower()
        found = await self.link.ask(lambda cluster: group_details(cluster, name, kind))
        owners: dict[tuple[str, int], list[str]] = {}
        for one in found.members:
            for at in one.partitions:
                owners.setdefault(at, []).append(one.client_id or one.id)
        shown = sorted(set(found.committed) | set(owners) | set(found.starts))
        # Asked after the committed offsets and now: an end that was remembered may lie before them, and hide the lag.
        ends = await self.watch.ends(sorted({topic for topic, _ in shown}), age_s=0.0)
        rows = []
        for at in shown:
            committed, start = found.committed.get(at), found.starts.get(at)
            offset = committed.offset if committed else start.offset if start else None
            end = ends.get(at[0], {}).get(at[1])
            lag = start.lag if start is not None else None
            if lag is None and committed is not None and end is not None:
                lag = max(0, end.latest - committed.offset)
            rows.append(
                OffsetRow(*at, offset, end.latest if end else None, lag, ", ".join(sorted(owners.get(at, ()))))
            )  # fmt: skip
        return GroupView(name, found.state, kind, found.coordinator, found.assignor, found.members, rows,
                         sum(row.lag or 0 for row in rows), why_not(found.state, kind),
                         list(found.topology))  # fmt: skip

    async def messages(self, person: Person, query: MessageQuery) -> Scan:
        """Start a scan of a topic's messages, and return it."""
        self.limits.demand(person, "topic", query.topic)
        if not 1 <= query.limit <= MAX_LIMIT:
            raise HttpProblem(400, f"A limit is from 1 to {MAX_LIMIT}.")
        ends = (await self.watch.ends([(await self.watch.topic_info(query.topic)).name], age_s=0.0))[query.topic]
        at_time = await self.watch.offsets_at(query.topic, query.amount) if query.start == "time" else {}
        ranges = plan_ranges(query, ends, at_time)
        return self._start_scan(lambda: Scan(query, ranges, self.link.consumer, self.decoder))

    def _start_scan(self, make: Callable[[], S]) -> S:
        """Start a scan. 429 if the limit of running scans, over all clusters and users, is reached."""
        self._scans[:] = [one for one in self._scans if not one.progress.is_done]
        if len(self._scans) >= MAX_SCANS:
            raise HttpProblem(429, f"{MAX_SCANS} readings of topics are under way: stop one, or wait for its end.")
        scan = make()
        self._scans.append(scan)
        return scan

    async def analyse(self, person: Person, topic: str) -> AnalysisScan:
        """Start a scan that analyses the whole topic, and return it."""
        self.limits.demand(person, "topic", topic)
        ends = (await self.watch.ends([(await self.watch.topic_info(topic)).name], age_s=0.0))[topic]
        query = MessageQuery(topic, "earliest")
        ranges = plan_ranges(query, ends, {})
        return self._start_scan(lambda: AnalysisScan(query, ranges, self.link.consumer, self.decoder))

    async def copy_topic(self, person: Person, topic: str, to: str, cluster: str | None = None) -> CopyScan:
        """Start a scan that copies the topic's present messages to an existing topic, and return it. Raises the
        problem 403 for a user who does not see all fields."""
        demand(person, "editor")
        other = self if cluster is None else self.of_cluster(cluster)
        self.limits.demand(person, "topic", topic)
        other.limits.demand(person, "topic", to)
        if self.hidden_paths(topic, person):
            raise HttpProblem(403, f"{person.name} does not see all fields of {topic}, and a copy would show them.")
        if other is self and to == topic:
            raise HttpProblem(400, "A topic cannot be copied to itself: name another.")
        await other.watch.topic_info(to)
        ends = (await self.watch.ends([(await self.watch.topic_info(topic)).name], age_s=0.0))[topic]
        query = MessageQuery(topic, "earliest")
        ranges = plan_ranges(query, ends, {})
        scan = self._start_scan(
            lambda: CopyScan(query, ranges, self.link.consumer, self.decoder, other.link.producer, to)
        )
        self.audit.note(person.name, "copy topic", f"{topic} to {to} of {other.config.name}")
        return scan

    def demand_queries(self, person: Person) -> None:
        """Raise 403 for a user with masks or limits: a ksql query would show what they hide."""
        has_masks = bool(parse_masks(f"{self.config.masks}\n{self.state.stored.masks}"))
        if (has_masks and not person.may("admin")) or not self.limits.allow_all(person, "topic"):
            raise HttpProblem(
                403, f"{person.name} does not see all fields of all topics, and a query would show them.", 40304
            )

    def hidden_paths(self, topic: str, person: Person) -> tuple[tuple[str, ...], ...]:
        if person.may("admin"):
            return ()
        return paths_for(parse_masks(f"{self.config.masks}\n{self.state.stored.masks}"), topic)

    async def acls(self) -> list[tuple[Pattern, AclEntry]]:
        return await self.link.ask(describe_acls)

    async def quotas(self) -> list[tuple[Entity, Mapping[str, float]]]:
        def ask(cluster: Cluster) -> list[tuple[Entity, Mapping[str, float]]]:
            found: list[tuple[Entity, Mapping[str, float]]] = []
            for kinds in (("user",), ("client-id",), ("user", "client-id"), ("ip",)):
                found += describe_quotas(cluster, [Match(kind, is_any=True) for kind in kinds])
            return found

        return await self.link.ask(ask)

    async def users(self) -> dict[str, list[str]]:
        found = await self.link.ask(lambda cluster: describe_credentials(cluster, None))
        return {name: [mechanism.text for mechanism, _ in ways] for name, ways in sorted(found.items())}

    # Changing.

    async def _change(
        self, person: Person, role: str, action: str, target: str, change: Callable[[Cluster], T],
        on: tuple[str, str] | None = None,
    ) -> T:  # fmt: skip
        """Check role and limits, make and audit the change. `on` is the kind and the name of the limited resource."""
        try:
            demand(person, role)
            if on is not None:
                self.limits.demand(person, *on)
            done = await self.link.ask(change)
        except HttpProblem as problem:
            self.audit.note(person.name, action, target, problem.message)
            raise
        self.audit.note(person.name, action, target)
        self.watch.forget()
        return done

    async def create_topic(
        self, person: Person, name: str, partitions: int, replication: int, configs: Mapping[str, str]
    ) -> None:
        topic = NewTopic(name, partitions, replication, configs=configs)
        await self._change(
            person, "editor", "create topic", name, lambda cluster: create_topic(cluster, topic), ("topic", name)
        )
        await self.watch.wait_for_topic(name)

    async def add_partitions(self, person: Person, name: str, total: int) -> None:
        await self._change(
            person, "editor", "add partitions", f"{name} to {total}",
            lambda cluster: create_partitions(cluster, {name: (total, None)}), ("topic", name),
        )  # fmt: skip

    async def change_replication(self, person: Person, name: str, factor: int) -> None:
        """Start a reassignment that gives every partition `factor` replicas; brokers copy in the background."""
        image = await self.watch.image(0.0)
        info = await self.watch.topic_info(name)
        brokers = [node.node_id for node in image.nodes.nodes]
        try:
            wanted = plan_replicas({one.partition: one.replicas for one in info.partitions}, brokers, factor)
        except BadReplication as wrong:
            raise HttpProblem(400, str(wrong)) from None

        def change(cluster: Cluster) -> None:
            failed = alter_reassignments(cluster, {(name, at): replicas for at, replicas in wanted.items()})
            for failure in failed.values():
                raise failure

        await self._change(person, "admin", "change replication", f"{name} to {factor}", change, ("topic", name))

    async def delete_topic(self, person: Person, name: str) -> None:
        await self._change(
            person, "admin", "delete topic", name, lambda cluster: delete_topics(cluster, [name]), ("topic", name)
        )

    async def set_config(self, person: Person, kind: ResourceType, name: str, key: str, value: str | None) -> None:
        """Set a config; None resets the key to its default."""
        change = Change(key, value, Operation.SET if value is not None else Operation.DELETE)
        await self._change(
            person, "admin", "set configuration", f"{kind.name.lower()} {name}: {key}",
            lambda cluster: alter_configs(cluster, (kind, name), [change]),
            ("topic", name) if kind is ResourceType.TOPIC else None,
        )  # fmt: skip

    async def empty_topic(self, person: Person, name: str) -> None:
        """Delete all records up to the current log end offsets."""
        ends = (await self.watch.ends([name], age_s=0.0))[name]
        leaders = {one.partition: one.leader for one in (await self.watch.topic_info(name)).partitions}

        def delete(cluster: Cluster) -> None:
            from pessoa.client.client_errors import check
            from pessoa.wire.api.delete_records import (
                DeleteRecordsPartition,
                DeleteRecordsRequest,
                DeleteRecordsResponse,
                DeleteRecordsTopic,
            )

            for leader in sorted(set(leaders.values())):
                parts = [
                    DeleteRecordsPartition(partition_index=at, offset=ends[at].latest)
                    for at in ends
                    if leaders.get(at) == leader
                ]
                topic = DeleteRecordsTopic(name=name, partitions=parts)
                request = DeleteRecordsRequest(topics=[topic], timeout_ms=cluster.api_timeout_ms)
                answer = cluster.ask(request, DeleteRecordsResponse, node=leader, name="deleteRecords")
                for result in answer.topics:
                    for part in result.partitions:
                        check(part.error_code)

        await self._change(person, "admin", "empty topic", name, delete, ("topic", name))

    def encoded(self, text: str | None, serde: str = "") -> bytes | None:
        """Return the bytes of the typed text, encoded by the named own serde if any. 400 if the serde refuses it."""
        if text is None or not serde:
            return None if text is None else text.encode()
        try:
            return self.decoder.serdes.encode(serde, text)
        except SerdeFailed as failure:
            raise HttpProblem(400, str(failure)) from None

    async def produce(
        self, person: Person, topic: str, key: bytes | None, value: bytes | None,
        headers: list[tuple[str, bytes]] | None = None, partition: int = -1,
    ) -> tuple[int, int]:  # fmt: skip
        demand(person, "editor")
        self.limits.demand(person, "topic", topic)
        await self.watch.topic_info(topic)
        position = await self.link.produce(topic, key, value, headers or [], partition)
        self.audit.note(person.name, "produce", f"{topic}-{position[0]} at {position[1]}")
        self.watch.forget_ends(topic)
        return position

    async def plan_reset(self, name: str, topic: str, way: str, amount: int | None) -> list[ResetRow]:
        """Return the present and the new offset of each partition for a reset of the group. Raises an `HttpProblem`."""
        group = (await self.watch.groups(0.5)).get(name)
        committed = {} if group is None else group.offsets_of(topic)
        ends = (await self.watch.ends([(await self.watch.topic_info(topic)).name], age_s=0.0))[topic]
        found = await self.watch.offsets_at(topic, amount) if way == "time" and amount is not None else {}
        try:
            return plan_reset(
                way, amount, committed, {(topic, at): end for at, end in ends.items()},
                {(topic, at): offset for at, offset in found.items()},
            )  # fmt: skip
        except BadReset as wrong:
            raise HttpProblem(400, str(wrong)) from None

    async def reset_offsets(self, person: Person, name: str, rows: list[ResetRow]) -> None:
        listing = (await self.watch.groups(0.0)).get(name)
        reason = why_not(listing.listing.state, listing.listing.kind) if listing else None
        if reason is not None:
            raise HttpProblem(409, reason)
        offsets = {(row.topic, row.partition): row.target for row in rows}
        is_share = listing is not None and listing.listing.kind.lower() == "share"
        reset = reset_share_offsets if is_share else commit_offsets
        await self._change(
            person, "editor", "reset offsets", name, lambda cluster: reset(cluster, name, offsets), ("group", name)
        )

    async def forget_share_topic(self, person: Person, name: str, topic: str) -> None:
        """Delete the start offsets of a topic from a share group without members."""
        await self._change(
            person, "admin", "delete share offsets", f"{name}: {topic}",
            lambda cluster: forget_share_topic(cluster, name, topic), ("group", name),
        )  # fmt: skip

    async def delete_group(self, person: Person, name: str) -> None:
        await self._change(
            person, "admin", "delete group", name, lambda cluster: delete_group(cluster, name), ("group", name)
        )

    async def add_acl(self, person: Person, pattern: Pattern, entry: AclEntry) -> None:
        target = f"{entry} on {pattern}"
        await self._change(person, "admin", "add ACL", target, lambda cluster: create_acls(cluster, pattern, [entry]))

    async def delete_acl(self, person: Person, pattern: Pattern, entry: AclEntry) -> None:
        await self._change(
            person, "admin", "delete ACL", f"{entry} on {pattern}",
            lambda cluster: delete_acls(cluster, pattern, [entry]),
        )  # fmt: skip

    async def set_quota(self, person: Person, entity: Entity, values: Mapping[str, float | None]) -> None:
        await self._change(
            person, "admin", "set quota", str(entity), lambda cluster: alter_quotas(cluster, entity, values)
        )

    async def set_user(self, person: Person, name: str, password: str | None) -> None:
        """Set the SCRAM password of a user, or with None remove the user."""

        def change(cluster: Cluster) -> None:
            if password is not None:
                mechanism = Mechanism.SCRAM_SHA_512
                alter_credentials(cluster, name, [Credential(mechanism, SCRAM_ITERATIONS, password)], [])
                return
            known = describe_credentials(cluster, [name]).get(name, [])
            alter_credentials(cluster, name, [], [mechanism for mechanism, _ in known])

        await self._change(person, "admin", "set user" if password else "remove user", name, change)


async def cluster_rows(center: Center, t: Text) -> list[ClusterRow]:
    """Return a row for every cluster; for one that does not answer, the row has the error."""

    async def ask(name: str, one: Center) -> ClusterRow:
        try:
            image, health = await one.watch.image(10.0), await one.watch.health(t)
        except HttpProblem as problem:
            return ClusterRow(name, one.link.servers, problem.message, "bad")
        last = one.watch.history.last
        return ClusterRow(
            name, one.link.servers, str(health), health.level.value, len(image.nodes.nodes), len(image.topics),
            last("in"), last("out"), last("lag"),
        )  # fmt: skip

    return list(await asyncio.gather(*(ask(name, one) for name, one in center.clusters.items())))


def _directory(config: Config) -> LdapDirectory | None:
    settings = ldap_settings(config)
    return None if settings is None else LdapDirectory(settings, lambda: tls_context(config.http.authority))


def _authenticator(config: Config, directory: LdapDirectory | None) -> Authenticator | None:
    """Return the authenticator: users of a file, of Kafka or of a directory, and bearer tokens beside them."""
    if directory is None:
        return config.http.authenticator(config.bootstrap_servers, config.client)
    # The same bounds and memory as for logins that brokers try.
    users = KafkaUsers(directory.log_in, config.http.remember_ms, config.http.realm)
    verifier = config.http.verifier()
    if verifier is None:
        return users
    return BearerAuth(verifier, SystemClock().now_ms, realm=config.http.realm, roles=config.http.roles, also=users)


def _oidc(config: Config) -> OidcLogin | None:
    if not config.oidc_authorization_url:
        return None
    return OidcLogin(
        Provider(config.oidc_authorization_url, config.oidc_token_url, config.oidc_client_id, config.oidc_client_secret)
    )


def _services(config: Config) -> Services:
    authority = config.http.authority
    trust = tls_context(authority) if authority else True
    name, colon, password = config.registry_settings.get("basic.auth.user.info", "").partition(":")
    login = (name, password) if colon else None
    return Services(
        RegistryLink(config.registry_url, registry_settings(config), trust=trust, login=login),
        ServiceLink("Connect", config.connect_url, "/", trust=trust, login=login),
        ServiceLink("ksql", config.ksql_url, "/info", trust=trust, login=login),
        ServiceLink("Pipelines", config.pipelines_url, "/task-slots", trust=trust, login=login),
    )
