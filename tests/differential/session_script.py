"""The parts of the session, in the order in which they are played.

Each part is a function that sends requests by a `Player`; it is played on Apache Kafka and on us.
"""

from __future__ import annotations

from tests.differential import session_cluster, session_data, session_groups, session_transactions
from tests.differential.session_stage import Player

ACTS = (
    *session_cluster.OPENING,
    *session_data.ACTS,
    *session_groups.ACTS,
    *session_transactions.ACTS,
    *session_cluster.CLOSING,
)


def play(player: Player) -> None:
    player.open()
    for act in ACTS:
        act(player)
