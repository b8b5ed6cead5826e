"""The settings of the authorizer, and what is wrong with them. They stand in the file of a node, and do not change
while it runs.

    authorizer.class.name           Kafka's StandardAuthorizer, or our own name for what has its rules
    super.users                     User:a;User:b, who may do everything. The nodes of the cluster must be among them:
                                    they need CLUSTER_ACTION before the access control lists are read
    allow.everyone.if.no.acl.found  in no table of Kafka's: it is the authorizer's own
"""

from __future__ import annotations

from collections.abc import Mapping

from pessoa.base.config_values import ConfigProblem

CLASS_NAME = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
AUTHORIZER_KEYS = (CLASS_NAME, SUPER_USERS, ALLOW_EVERYONE)

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OUR_AUTHORIZER = "pessoa.security.authorizer.Authorizer"


def has_authorizer(settings: Mapping[str, str]) -> bool:
    return bool(settings.get(CLASS_NAME, "").strip())


def check_authorizer(settings: Mapping[str, str]) -> None:
    """Raise a `ConfigProblem` if the node would not enforce what the settings of its authorizer say."""
    if not has_authorizer(settings):
        return
    name = settings[CLASS_NAME].strip()
    if name not in (STANDARD_AUTHORIZER, OUR_AUTHORIZER):
        why = f"no class of Java is asked; write {STANDARD_AUTHORIZER}, whose rules are enforced here, or remove it"
        raise ConfigProblem(CLASS_NAME, name, why)
    from pessoa.security.authorizer import parse_super_users

    users = settings.get(SUPER_USERS, "")
    try:
        parse_super_users(users)
    except ValueError as problem:
        raise ConfigProblem(SUPER_USERS, users, str(problem)) from problem
    text = settings.get(ALLOW_EVERYONE, "false")
    if text.strip().lower() not in ("true", "false"):
        raise ConfigProblem(ALLOW_EVERYONE, text, "it is true or false")
