"""Whether a member can rely on what it has on its disk.

All of the safety of a quorum rests on voters that remember: a voter that said "I have this record" keeps it, and votes
for no candidate that lacks it. A disk can break that promise without a word. So a member that has reason to doubt its
disk keeps its vote to itself until a leader, elected without it, has given it everything that was committed:

    WHOLE       the disk has what was written to it
    NEW         there is nothing at all on it. Every voter of a new cluster is like that, and so is one whose disk was
                replaced; without directory ids of voters (kraft.version 0) no node can tell them apart. It votes for
                candidates that have nothing either, which is how a new cluster elects its first leader, and later on
                for the one that it has voted for
    DAMAGED     it has less than was once synced to it. It neither votes nor stands

Kafka has no such states: there a voter whose disk was lost, or whose log was cut at a damaged place, votes as before.
"""

from __future__ import annotations

from enum import Enum


class Memory(Enum):
    WHOLE = "whole"
    NEW = "new"
    DAMAGED = "damaged"
