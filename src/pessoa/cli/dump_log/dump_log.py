"""`kafka-dump-log`: what is in the files of a partition, line for line as Apache Kafka's tool of that name prints it.

    .log          every batch, and with --deep-iteration or --print-data-log its records       batch_lines
    .checkpoint   a snapshot of the metadata log, which is made of batches too
    .index        the entries, each held against the log beside it                             index_lines
    .timeindex
    .txnindex     aborted transactions
    .snapshot     producer state

It needs no broker and changes nothing. Scripts read its output, so the words and their order are Kafka's. What goes
to standard output are lines that come as the files are read; what was found to be wrong is kept (`Findings`) and goes
to standard error at the end, since it is what one looks for.

The end of a run is 0 even if an index disagrees with its log, as with Apache: that is a finding. It is 1 if the
command line or a file makes no sense. Apache shows a stack trace then, and we a sentence.

How the command line is read, and how the process ends, is as in all tools (`command_line`, `tool_run`). A dump is over
in a few dozen milliseconds, most of which are Python's imports: what only some files need is imported where it is
needed, and nothing here uses `pathlib`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli.command_line import INTEGER, Options
from pessoa.cli.dump_log.findings import Findings, Unreadable
from pessoa.cli.tool_run import tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.cli.command_line import Given
    from pessoa.cli.dump_log.batch_lines import Detail

_INT32_MAX = (1 << 31) - 1
_STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"

# The option, and what it takes the records of a log for. The first one given wins, as with Apache.
_LOG_DECODERS = {
    "offsets-decoder": "the committed offsets and groups of __consumer_offsets",
    "transaction-log-decoder": "the transactions of __transaction_state",
    "cluster-metadata-decoder": "the metadata of __cluster_metadata",
    "remote-log-metadata-decoder": "the metadata of tiered storage; this tool does not offer that",
    "share-group-state-decoder": "the share groups of __share_group_state",
}


def make_options() -> Options:
    purpose = "Parse a log file and dump its contents to the console."
    options = Options("kafka-dump-log", purpose, greeting=purpose)
    flag, text = options.flag, options.text
    text("files", "REQUIRED: what to read, with commas between the names", metavar="file1, file2, ...")
    flag("print-data-log", "print keys and values as well")
    flag("deep-iteration", "print every record, not only every batch")
    flag("skip-record-metadata", "of a record print only key and value")
    text("max-bytes", "read only the first bytes of a .log", metavar="size", kind=INTEGER, default=str(_INT32_MAX))
    flag("verify-index-only", "hold indexes against their log without printing them")
    flag("index-sanity-check", "check indexes only as a broker does when it starts")
    text("max-message-size", "the largest batch that an index may point to", metavar="size", kind=INTEGER,
         default=str(5 * 1024 * 1024))  # fmt: skip
    for part in ("key", "value"):
        text(f"{part}-decoder-class", f"what a {part} is: StringDecoder, IntegerDecoder, LongDecoder or DefaultDecoder",
             metavar="class", default=_STRING_DECODER, optional_value=True)  # fmt: skip
    for name, meaning in _LOG_DECODERS.items():
        flag(name, f"take records for {meaning}")
    return options


@tool(make_options)
def main(given: Given) -> int:
    line.require(given, "files")
    given.check_numbers()
    findings = Findings()
    try:
        for name in given.value("files").split(","):
            if name:
                _dump(name, given, findings)
    except Unreadable as problem:
        sys.stdout.flush()
        print(f"kafka-dump-log: {problem}", file=sys.stderr)
        return 1
    sys.stdout.flush()
    for finding in findings.lines():
        print(finding, file=sys.stderr)
    return 0


def _dump(name: str, given: Given, findings: Findings) -> None:
    print(f"Dumping {name}")
    lines = _lines(name, given, findings)
    if lines is None:
        print(f"Ignoring unknown file {name}", file=sys.stderr)
        return
    write = sys.stdout.write
    try:
        for line in lines:
            write(f"{line}\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unreadable(f"{error.filename or name}: {error.strerror}") from error


def _lines(path: str, given: Given, findings: Findings) -> Iterator[str] | None:
    """Return the lines to print about a file; None if its name has no known suffix."""
    match os.path.splitext(path)[1]:
        case ".log" | ".checkpoint":
            from pessoa.cli.dump_log import batch_lines

            return batch_lines.lines(path, _detail(given), given.number("max-bytes"), findings)
        case ".index":
            from pessoa.cli.dump_log import index_lines

            return index_lines.offset_index_lines(
                path,
                given.has("index-sanity-check"),
                given.has("verify-index-only"),
                given.number("max-message-size"),
                findings,
            )
        case ".timeindex":
            from pessoa.cli.dump_log import index_lines

            return index_lines.time_index_lines(
                path, given.has("index-sanity-check"), given.has("verify-index-only"), findings
            )
        case ".txnindex":
            from pessoa.cli.dump_log import index_lines

            return index_lines.transaction_index_lines(path)
        case ".snapshot":
            from pessoa.cli.dump_log import index_lines

            return index_lines.producer_snapshot_lines(path, findings)
        case _:
            return None


def _detail(given: Given) -> Detail:
    """Return how much of each batch to print. An option that names a decoder also asks for the contents."""
    from pessoa.cli.dump_log.batch_lines import Detail

    metadata = not given.has("skip-record-metadata")
    decoders = [name for name in _LOG_DECODERS if given.has(name)]
    if not (decoders or given.has_any("print-data-log", "key-decoder-class", "value-decoder-class")):
        return Detail(given.has("deep-iteration"), metadata, None)
    from pessoa.cli.dump_log.record_decoders import log_decoder, plain_decoder

    if decoders:
        return Detail(True, metadata, log_decoder(decoders[0]))
    return Detail(True, metadata, plain_decoder(given.value("key-decoder-class"), given.value("value-decoder-class")))
