"""The Streams API: pipelines between topics in typed, chainable Python. See docs/STREAMS.md.

    from pessoa.streams import App, tumbling

A front end of the logical plan in `pipelines`, whose engine runs them on Spark. Importing it is cheap; Spark comes in
when something runs.
"""

from pessoa.pipelines.plan import PlanRefused
from pessoa.pipelines.row_process import Context
from pessoa.streams.app import App
from pessoa.streams.flows import Grouped, Stream, Table
from pessoa.streams.serdes import (
    Serde,
    avro,
    boolean,
    delimited,
    double,
    floating,
    integer,
    json,
    long,
    nothing,
    protobuf,
    raw,
    short,
    string,
)
from pessoa.streams.trial import Record
from pessoa.streams.windows import hopping, session, sliding, tumbling

__all__ = [
    "App",
    "Stream",
    "Table",
    "Grouped",
    "Record",
    "PlanRefused",
    "tumbling",
    "hopping",
    "session",
    "sliding",
    "Context",
    "Serde",
    "json",
    "avro",
    "protobuf",
    "delimited",
    "string",
    "short",
    "integer",
    "long",
    "floating",
    "double",
    "boolean",
    "raw",
    "nothing",
]
