"""`confluent`: the platform by the commands of Confluent's CLI 5, which tutorials use.

    list, start, stop, status, top, log, current, destroy        the services (confluent_services)
    produce, consume                                             the console tools, with the right address
    list plugins|connectors, status <connector>, load, unload, config     the connectors of Connect (connector_commands)
    version, help

`confluent local start`, `confluent local services start` and the like mean the same. Mistakes are told on standard
output and end with 127, as they always did.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pessoa.cli.confluent import confluent_services as services
from pessoa.cli.confluent.confluent_services import Mistake

_BANNER = """\
This CLI is intended for development only, not for production
https://docs.confluent.io/current/cli/index.html
"""
_MISTAKE = 127
_GREEN, _RED, _PLAIN = "\033[0;32m", "\033[0;31m", "\033[0m"

# Command, its arguments, and one line of help.
COMMANDS = {
    "config": ("<connector> [-d <file>]", "Show or change the configuration of a connector."),
    "consume": ("<topic> [--value-format avro] [options]", "Consume from a topic."),
    "current": ("", "Print the directory of the services' data and logs."),
    "destroy": ("", "Stop the services and delete their data."),
    "help": ("[<command>]", "Print this, or how a command is used."),
    "list": ("[plugins | connectors]", "List the services, or connector plugins, or predefined connectors."),
    "load": ("<connector> [-d <file>]", "Load a connector."),
    "log": ("<service> [tail options]", "Read what a service has printed."),
    "produce": ("<topic> [--value-format avro] [options]", "Produce to a topic."),
    "start": ("[<service>]", "Start all services, or one and what it needs."),
    "status": ("[<service> | connectors | <connector>]", "Say what is up."),
    "stop": ("[<service>]", "Stop all services, or one and what needs it."),
    "top": ("[<service>]", "Watch what the services use."),
    "unload": ("<connector>", "Unload a connector."),
    "version": ("[<service>]", "Print the version."),
}


def main(words: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if words is None else words)
    if not given or given[0] in ("--help", "-h"):
        _print_help()
        return 0
    print(_BANNER)
    # Newer forms of the same commands.
    if given[0] == "local":
        given = _to_old_form(given[1:])
    command, *rest = given or ["help"]
    # People write commands down with a capital letter, as at the beginning of a line.
    command = command if command in _ACTIONS else command.lower()
    if rest[:1] in (["--help"], ["-h"]):
        command, rest = "help", [command]
    try:
        return _ACTIONS.get(command, _unknown_command(command))(rest) or 0
    except Mistake as mistake:
        print(mistake)
        return _MISTAKE
    except KeyboardInterrupt:
        return 130


def _unknown_command(command: str) -> Callable[[list[str]], int | None]:
    def complain(_: list[str]) -> int | None:
        raise Mistake(f"Unknown command '{command}'.\nType 'confluent help' for a list of available commands.")

    return complain


def _to_old_form(words: list[str]) -> list[str]:
    """Return `services start`, `services kafka start` and `services connect connector load x` in the form of the old
    CLI (`start`, `start kafka`, `load x`)."""
    words = [word for word in words if word != "--"]
    if words[:1] != ["services"]:
        return words
    words = words[1:]
    if len(words) > 1 and words[0] in services.SERVICES:
        service, verb, *rest = words
        if service == "connect" and verb in ("connector", "plugin"):
            return ["list", "plugins"] if verb == "plugin" else rest
        return [verb, *rest] if verb in ("produce", "consume") else [verb, service, *rest]
    return words


# Services.


def _list(words: list[str]) -> None:
    if words[:1] == ["plugins"]:
        from pessoa.cli.confluent.connector_commands import print_plugins

        print_plugins()
    elif words[:1] == ["connectors"]:
        from pessoa.cli.confluent.connector_commands import PREDEFINED

        print("Bundled Predefined Connectors (edit configuration under etc/):")
        print("".join(f"  {name}\n" for name in PREDEFINED), end="")
    else:
        print("Available services:")
        print("".join(f"  {name}\n" for name in services.available()), end="")


def _check_service(name: str) -> str:
    if name == "zookeeper":
        raise Mistake("There is no zookeeper: its work is done by the quorum inside kafka.")
    if name not in services.SERVICES:
        raise Mistake(f"Unknown service: {name}")
    if name not in services.available():
        raise Mistake(f"This installation of Pessoa has no {name} in it.")
    return name


def _start(words: list[str]) -> None:
    wanted = services.available()
    if words:
        name = _check_service(words[0])
        wanted = [*services.SERVICES[name].needs, name]
    print(f"Using CONFLUENT_CURRENT: {services.run_directory()}")
    for name in wanted:
        if services.is_up(name):
            print(f"{name} is already running. Try restarting if needed")
            continue
        print(f"Starting {name}", flush=True)
        services.start(name)
        _print_state(name)


def _stop(words: list[str]) -> None:
    wanted = list(reversed(services.available()))
    if words:
        name = _check_service(words[0])
        wanted = [*services.stopped_with(name), name]
    print(f"Using CONFLUENT_CURRENT: {services.run_directory()}")
    for name in wanted:
        print(f"Stopping {name}", flush=True)
        services.stop(name)
        _print_state(name)


def _status(words: list[str]) -> None:
    names = list(reversed(services.available()))
    if words:
        if words[0] not in services.SERVICES and words[0] != "zookeeper":
            from pessoa.cli.confluent.connector_commands import print_status

            print_status(None if words[0] == "connectors" else words[0])
            return
        # The service, and what it stands on.
        names = names[names.index(_check_service(words[0])) :]
    for name in names:
        _print_state(name)


def _print_state(name: str) -> None:
    word, colour = ("UP", _GREEN) if services.is_up(name) else ("DOWN", _RED)
    if sys.stdout.isatty():
        word = f"{colour}{word}{_PLAIN}"
    print(f"{name} is [{word}]")


def _current(_: list[str]) -> None:
    print(services.run_directory())


def _destroy(_: list[str]) -> None:
    services.require_own()
    _stop([])
    print(f"Deleting: {services.run_directory()}")
    services.remove_run_directory()


def _log(words: list[str]) -> int:
    if not words:
        raise Mistake("Missing required service argument in 'confluent log'")
    paths = [str(path) for path in services.output_paths(_check_service(words[0]))]
    if not paths:
        raise Mistake(f"{words[0]} has printed nothing: it was not started in {services.run_directory()}")
    # Of several files tail knows -n5, and not -5.
    wanted = [f"-n{word[1:]}" if word[0] == "-" and word[1:].isdigit() else word for word in words[1:] if word]
    command = ["tail", *wanted, *paths] if wanted else [os.environ.get("PAGER", "less"), *paths]
    return _run(command)


def _top(words: list[str]) -> int:
    names = [_check_service(words[0])] if words else services.available()
    numbers = [str(number) for name in names for number in services.process_ids(name)]
    if not numbers:
        raise Mistake("No services are running")
    if Path("/proc").is_dir():
        return _run(["top", "-p", ",".join(numbers)])
    # The other kind of top watches one process.
    if len(numbers) > 1:
        raise Mistake("Missing required service argument in 'confluent top'")
    return _run(["top", "-pid", numbers[0]])


def _run(command: list[str]) -> int:
    """Run a command that prints for itself, behind what this one has printed, and return its exit code."""
    sys.stdout.flush()
    return subprocess.run(command, check=False).returncode


# Records.


def _produce(words: list[str]) -> int:
    return _console("producer", words, "--broker-list")


def _consume(words: list[str]) -> int:
    return _console("consumer", words, "--bootstrap-server")


def _console(role: str, words: list[str], flag: str) -> int:
    from pessoa.cli.tools import TOOLS, load

    if not words:
        raise Mistake(f"Missing required topic argument in 'confluent {role.removesuffix('r')}'")
    topic, rest = words[0], words[1:]
    value_format = ""
    if "--value-format" in rest:
        position = rest.index("--value-format")
        value_format = rest[position + 1] if position + 1 < len(rest) else ""
        del rest[position : position + 2]
    tool = f"kafka-{value_format}-console-{role}" if value_format else f"kafka-console-{role}"
    if tool not in TOOLS:
        raise Mistake(f"There is no {tool} in this installation of Pessoa.")
    if "--broker-list" not in rest and "--bootstrap-server" not in rest:
        rest = [flag, f"localhost:{services.port('kafka')}", *rest]
    return load(tool)(["--topic", topic, *rest])


# Connectors, and the rest.


def _load(words: list[str]) -> None:
    from pessoa.cli.confluent.connector_commands import load

    load(_connector("load", words), _file_of(words))


def _unload(words: list[str]) -> None:
    from pessoa.cli.confluent.connector_commands import unload

    unload(_connector("unload", words))


def _config(words: list[str]) -> None:
    from pessoa.cli.confluent.connector_commands import configure

    configure(_connector("config", words), _file_of(words))


def _connector(command: str, words: list[str]) -> str:
    if not words or words[0].startswith("-"):
        raise Mistake(f"Missing required connector name argument in 'confluent {command}'")
    return words[0]


def _file_of(words: list[str]) -> str | None:
    if "-d" not in words:
        return None
    position = words.index("-d") + 1
    if position >= len(words):
        raise Mistake("-d needs the name of a file")
    return words[position]


def _version(words: list[str]) -> None:
    from pessoa import __version__

    if words:
        print(f"{_check_service(words[0])}: {__version__}")
    else:
        print(f"Pessoa: {__version__}")


def _help(words: list[str]) -> None:
    if not words:
        _print_help()
    elif words[0] in COMMANDS:
        arguments, text = COMMANDS[words[0]]
        print(f"Usage: confluent {words[0]} {arguments}".rstrip() + f"\n\n{text}")
    else:
        raise Mistake(f"Unknown command '{words[0]}'.\nType 'confluent help' for a list of available commands.")


def _print_help() -> None:
    from pessoa.cli.examples import text_of

    print("confluent: A command line interface to manage Confluent services\n")
    print("Usage: confluent <command> [<subcommand>] [<parameters>]\n\nThese are the available commands:\n")
    for name, (_, text) in COMMANDS.items():
        print(f"    {name:<12}{text}")
    print("\n'confluent help' lists available commands. See 'confluent help <command>' to read about a")
    print("specific command.\n")
    print(text_of("confluent"), end="")


_ACTIONS: dict[str, Callable[[list[str]], int | None]] = {
    "config": _config,
    "consume": _consume,
    "current": _current,
    "destroy": _destroy,
    "help": _help,
    "list": _list,
    "load": _load,
    "log": _log,
    "produce": _produce,
    "start": _start,
    "status": _status,
    "stop": _stop,
    "top": _top,
    "unload": _unload,
    "version": _version,
}


if __name__ == "__main__":
    sys.exit(main())
