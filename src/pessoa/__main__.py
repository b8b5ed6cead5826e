"""The `pessoa` command, also as `python -m pessoa`: for where the script is not on PATH, and the supervisor's children.

A broker reads its own options, which are Kafka's, so click is not loaded for it: a broker would keep a megabyte of it.
"""

import sys


def main() -> None:
    if sys.argv[1:2] == ["broker"]:
        from pessoa.broker.assembly import main as run_broker

        sys.exit(run_broker(sys.argv[2:]))
    from pessoa.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
