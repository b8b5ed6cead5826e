"""Which cluster `pessoa users` and `pessoa acls` speak to, and as whom.

Without options it is the one that `pessoa up --secure` has made in the home, as its admin, whose file has addresses.
`--command-config` names the properties file of another administrator, and `--bootstrap-server` other addresses; so the
commands serve any cluster, Apache Kafka's as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster

F = TypeVar("F", bound=Callable[..., object])

PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
# A cluster that is away is known sooner than Kafka's own minute.
_TIMEOUT_MS = "15000"


def connection_options(command: F) -> F:
    """Add the two options by which a command finds its cluster."""
    servers = click.option("--bootstrap-server", "servers", metavar="HOST:PORT,…", help="Another cluster's brokers.")
    config = click.option("--command-config", "config", type=PATH, help="The file of another administrator.")
    return servers(config(command))


def admin_settings(servers: str | None, config: Path | None) -> dict[str, str]:
    """The settings of the administrator's client, with `bootstrap.servers` among them."""
    from pessoa.base.home_folder import pessoa_home
    from pessoa.cli.service_settings import settings_in
    from pessoa.cli.tool_run import default_cluster
    from pessoa.platform.secured_home import is_secured, secured_files
    from pessoa.platform.security_plan import ADMIN

    home = pessoa_home()
    if config is None and not is_secured(home):
        raise click.ClickException(
            f"There is no secured cluster in {home}. `pessoa up --secure` makes one; --command-config FILE names the"
            " settings for another one."
        )
    settings = settings_in(config if config is not None else secured_files(home).client(ADMIN))
    settings["bootstrap.servers"] = servers or settings.get("bootstrap.servers") or default_cluster()
    return settings


@contextmanager
def reach(settings: Mapping[str, str]) -> Iterator[Cluster]:
    """Yield the cluster for a block; errors of the cluster are raised as sentences for the user (ClickException)."""
    from pessoa.client.client_errors import AuthenticationFailed, KafkaFailure, RequestFailed, TimedOut
    from pessoa.client.cluster_client import Cluster
    from pessoa.wire.errors import ErrorCode

    servers = settings["bootstrap.servers"]
    try:
        with Cluster(servers, {"default.api.timeout.ms": _TIMEOUT_MS, **settings}) as cluster:
            yield cluster
    except AuthenticationFailed as failure:
        raise click.ClickException(
            f"{servers} refuses the login: {failure}. --command-config FILE names the settings of another user."
        ) from None
    except TimedOut as failure:
        raise click.ClickException(
            f"{servers} does not answer. Is the cluster up (`pessoa status`)? {failure}"
        ) from None
    except RequestFailed as failure:
        if failure.code is ErrorCode.SECURITY_DISABLED:
            raise click.ClickException(
                f"{servers} has no authorizer, so access control lists have no effect there. Set authorizer.class.name"
                " on its brokers, or start it with `pessoa up --secure`."
            ) from None
        if failure.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise click.ClickException(
                "This user may not do that: it needs DESCRIBE on the cluster to look and ALTER to change."
                " --command-config FILE names the settings of an administrator."
            ) from None
        raise click.ClickException(str(failure)) from None
    except KafkaFailure as failure:
        raise click.ClickException(str(failure)) from None
