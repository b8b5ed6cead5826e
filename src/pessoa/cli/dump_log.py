"""`kafka-dump-log`: what is in the files of a partition, line for line as Apache Kafka's tool of that name prints it.

    .log          every batch, and with --deep-iteration or --print-data-log its records       dump_log_batches
    .checkpoint   a snapshot of the metadata log, which is made of batches too
    .index        the entries, each held against the log beside it                             dump_log_indexes
    .timeindex
    .txnindex     aborted transactions
    .snapshot     producer state

It needs no broker and changes nothing. Scripts read its output, so the words and their order are Kafka's. What goes
to standard output are lines that come as the files are read; what was found to be wrong is kept (`Findings`) and goes
to standard error at the end, since it is what one looks for.

The end of a run is 0 even if an index disagrees with its log, as with Apache: that is a finding. It is 1 if the
command line or a file makes no sense. Apache shows a stack trace then, and we a sentence.

argparse and not click, because its rules are those of Kafka's tools (`--print` is enough for `--print-data-log`, and a
decoder option may come without its value) and because it starts in a fifth of the time.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pessoa.cli.dump_log_findings import Findings, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pessoa.cli.dump_log_batches import Detail

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

_EXAMPLES = """\
examples:
  kafka-dump-log --files orders-0/00000000000000000000.log
  kafka-dump-log --print-data-log --files orders-0/00000000000000000000.log
  kafka-dump-log --offsets-decoder --files __consumer_offsets-7/00000000000000000000.log
  kafka-dump-log --verify-index-only --files orders-0/00000000000000000000.index
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # Apache's tools end with 1 where argparse would with 2.
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}; --help says what there is\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kafka-dump-log",
        usage="%(prog)s --files FILE[,FILE...] [options]",
        description="Print what is in segments, indexes and snapshots, and say where they contradict each other.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--files", required=True, metavar="FILE,...", help="what to read, with commas between the names")
    option("--print-data-log", action="store_true", help="print keys and values as well")
    option("--deep-iteration", action="store_true", help="print every record, not only every batch")
    option("--skip-record-metadata", action="store_true", help="of a record print only key and value")
    option("--max-bytes", type=int, default=_INT32_MAX, metavar="N", help="read only the first N bytes of a .log")
    option("--verify-index-only", action="store_true", help="hold indexes against their log without printing them")
    option("--index-sanity-check", action="store_true", help="check indexes only as a broker does when it starts")
    option(
        "--max-message-size",
        type=int,
        default=5 * 1024 * 1024,
        metavar="N",
        help="the largest batch that an index may point to (default: %(default)s)",
    )
    for part in ("key", "value"):
        option(
            f"--{part}-decoder-class",
            nargs="?",
            const=_STRING_DECODER,
            metavar="CLASS",
            help=f"what a {part} is: StringDecoder (default), IntegerDecoder, LongDecoder or DefaultDecoder",
        )
    for name, meaning in _LOG_DECODERS.items():
        option(f"--{name}", dest="log_decoder", action="append_const", const=name, help=f"take records for {meaning}")
    option("--version", action="version", version=_version(), help="say which Pessoa this is")
    return parser


def _version() -> str:
    from pessoa import __version__

    return f"pessoa {__version__}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # As the JVM in a UTF-8 locale; a tool must not fail over bytes that are no text.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    findings = Findings()
    try:
        for name in options.files.split(","):
            if name:
                _dump(name, options, findings)
    except Unreadable as problem:
        sys.stdout.flush()
        print(f"kafka-dump-log: {problem}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output (`| head`) has enough. Nothing may be written at exit, when Python flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    sys.stdout.flush()
    for line in findings.lines():
        print(line, file=sys.stderr)
    return 0


def _dump(name: str, options: argparse.Namespace, findings: Findings) -> None:
    print(f"Dumping {name}")
    lines = _lines(Path(name), options, findings)
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


def _lines(path: Path, options: argparse.Namespace, findings: Findings) -> Iterator[str] | None:
    """What there is to print about a file, or None if files with such names are not known."""
    match path.suffix:
        case ".log" | ".checkpoint":
            from pessoa.cli import dump_log_batches

            return dump_log_batches.lines(path, _detail(options), options.max_bytes, findings)
        case ".index":
            from pessoa.cli import dump_log_indexes

            return dump_log_indexes.offset_index_lines(
                path, options.index_sanity_check, options.verify_index_only, options.max_message_size, findings
            )
        case ".timeindex":
            from pessoa.cli import dump_log_indexes

            return dump_log_indexes.time_index_lines(
                path, options.index_sanity_check, options.verify_index_only, findings
            )
        case ".txnindex":
            from pessoa.cli import dump_log_indexes

            return dump_log_indexes.transaction_index_lines(path)
        case ".snapshot":
            from pessoa.cli import dump_log_indexes

            return dump_log_indexes.producer_snapshot_lines(path, findings)
        case _:
            return None


def _detail(options: argparse.Namespace) -> Detail:
    """How much of each batch is wanted. A decoder is asked for in order to see contents."""
    from pessoa.cli.dump_log_batches import Detail
    from pessoa.cli.dump_log_decoders import log_decoder, plain_decoder

    wants_contents = bool(
        options.print_data_log or options.log_decoder or options.key_decoder_class or options.value_decoder_class
    )
    if not wants_contents:
        return Detail(records=options.deep_iteration, metadata=not options.skip_record_metadata, decode=None)
    if options.log_decoder:
        decode = log_decoder(next(name for name in _LOG_DECODERS if name in options.log_decoder))
    else:
        decode = plain_decoder(
            options.key_decoder_class or _STRING_DECODER, options.value_decoder_class or _STRING_DECODER
        )
    return Detail(records=True, metadata=not options.skip_record_metadata, decode=decode)


if __name__ == "__main__":
    sys.exit(main())
