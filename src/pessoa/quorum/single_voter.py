"""The names that a quorum of one had before it became a quorum like the others."""

from __future__ import annotations

from pessoa.quorum.raft_quorum import QuorumFailed

__all__ = ["QuorumFailed"]
