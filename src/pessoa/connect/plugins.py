"""Plugins, which configurations name: connectors, converters, transforms, predicates.

A name is a class name (`org.apache.kafka.connect.file.FileStreamSourceConnector`), its last part, or, for a
connector, that without "Connector". Three places have connectors: the table below, packages that are installed (entry
points of the group `pessoa.connectors`) and the folders of `plugin.path`, in which every .py file, and every package,
is looked through for classes of connectors, transforms, predicates and converters. What cannot be loaded is left out:
the log says why, and so does the complaint about a class that is not there.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeAlias, TypeVar

from pessoa import __version__
from pessoa.base.config_values import split_list
from pessoa.connect.connector import Connector
from pessoa.connect.converters import CONVERTERS, HEADER_CONVERTERS, load
from pessoa.connect.converters.converter import Converter
from pessoa.connect.predicates import PREDICATES, Predicate
from pessoa.connect.transforms import TRANSFORMS
from pessoa.connect.transforms.transform import Sided, Transform

log = logging.getLogger("pessoa.connect")

T = TypeVar("T")
# The classes of plugins: each has a table of keys.
PluginClass: TypeAlias = type[Connector] | type[Converter] | type[Transform] | type[Predicate]

ENTRY_POINTS = "pessoa.connectors"
# Class name → where it is. Imported when a configuration names it.
CONNECTORS = {
    "org.apache.kafka.connect.file.FileStreamSinkConnector": ("sink", "file_stream:FileStreamSinkConnector"),
    "org.apache.kafka.connect.file.FileStreamSourceConnector": ("source", "file_stream:FileStreamSourceConnector"),
    "io.confluent.kafka.connect.datagen.DatagenConnector": ("source", "datagen:DatagenConnector"),
    "io.confluent.connect.jdbc.JdbcSinkConnector": ("sink", "jdbc_sink:JdbcSinkConnector"),
    "io.confluent.connect.jdbc.JdbcSourceConnector": ("source", "jdbc_source:JdbcSourceConnector"),
    "io.confluent.connect.s3.S3SinkConnector": ("sink", "object_sink:S3SinkConnector"),
    "pessoa.connect.connectors.FileSystemSinkConnector": ("sink", "object_sink:FileSystemSinkConnector"),
    "io.debezium.connector.postgresql.PostgresConnector": ("source", "postgres_cdc:PostgresConnector"),
    "pessoa.connect.connectors.PostgresConnector": ("source", "postgres_cdc:PostgresConnector"),
    "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector": (
        "sink",
        "elasticsearch_sink:ElasticsearchSinkConnector",
    ),
    "pessoa.connect.connectors.TableSinkConnector": ("sink", "table_sink:TableSinkConnector"),
    "io.confluent.connect.mqtt.MqttSourceConnector": ("source", "mqtt_source:MqttSourceConnector"),
    "com.mongodb.kafka.connect.MongoSinkConnector": ("sink", "mongo_sink:MongoSinkConnector"),
    **{
        f"org.apache.kafka.connect.mirror.{name}": ("source", f"{module}:{name}")
        for module, name in (
            ("mirror_source", "MirrorSourceConnector"),
            ("mirror_checkpoints", "MirrorCheckpointConnector"),
            ("mirror_checkpoints", "MirrorHeartbeatConnector"),
        )
    },
    "io.aiven.kafka.connect.http.HttpSinkConnector": ("sink", "http_sink:HttpSinkConnector"),
    "io.confluent.connect.http.HttpSinkConnector": ("sink", "http_sink:HttpSinkConnector"),
}


class UnknownPlugin(LookupError):
    """No plugin has this name; the sentence lists those that exist."""


class Plugin(NamedTuple):
    name: str
    type: str
    version: str


class Plugins:
    def __init__(self, plugin_path: str = "") -> None:
        self.plugin_path = plugin_path
        self._connectors: dict[str, tuple[str, Callable[[], type[Connector]]]] = {}
        self._transforms: dict[str, type[Transform]] = dict(TRANSFORMS)
        self._predicates: dict[str, type[Predicate]] = dict(PREDICATES)
        self._converters: dict[str, Callable[[], type[Converter]]] = {}
        self._header_converters: dict[str, Callable[[], type[Converter]]] = {}
        # Sentences about what could not be loaded.
        self._failures: list[str] = []
        for name, (kind, place) in CONNECTORS.items():
            self._connectors[name] = (kind, partial(_import_connector, place))
        for name, where in CONVERTERS.items():
            self._converters[name] = partial(load, where)
        for name, where in HEADER_CONVERTERS.items():
            self._header_converters[name] = partial(load, where)
        for point in entry_points(group=ENTRY_POINTS):
            self._add_loaded(point.value, partial(_load, point))
        for folder in split_list(plugin_path):
            self._look_through(Path(folder).expanduser())

    def __repr__(self) -> str:
        return f"<Plugins: {len(self._connectors)} connectors, {len(self._transforms)} transforms>"

    # Plugins by name.

    def connector(self, name: str) -> type[Connector]:
        return self._connectors[self.connector_name(name)][1]()

    def connector_name(self, name: str) -> str:
        """Return the full class name of a connector, from its full name or an alias."""
        if name in self._connectors:
            return name
        found = [full for full in self._connectors if name in _short_names(full)]
        # Several packages may have an HttpSinkConnector that is the same to us.
        if found and len({self._connectors[full][1]() for full in found}) == 1:
            return found[0]
        if found:
            raise UnknownPlugin(f"More than one connector matches alias {name}. Please use full package and class name "
                                f"instead. Classes found: {', '.join(found)}")  # fmt: skip
        raise UnknownPlugin(
            f"Failed to find any class that implements Connector and which name matches {name}, available connectors "
            f"are: "
            f"{', '.join([*self._connectors, *self._failures])}"
        )

    def transform(self, name: str) -> type[Transform]:
        return _find(self._transforms, name, "Transformation")

    def predicate(self, name: str) -> type[Predicate]:
        return _find(self._predicates, name, "Predicate")

    def converter(self, name: str) -> type[Converter]:
        return _find(self._converters, name, "Converter")()

    def header_converter(self, name: str) -> type[Converter]:
        return _find(self._header_converters, name, "HeaderConverter")()

    def table(self, name: str) -> tuple[str, PluginClass]:
        """Return the type and the class of the plugin with this name, for its configuration keys."""
        kinds: list[tuple[str, Callable[[str], PluginClass]]] = [
            ("converter", self.converter),
            ("header_converter", self.header_converter),
            ("transformation", self.transform),
            ("predicate", self.predicate),
        ]
        try:
            found = self.connector(name)
        except UnknownPlugin:
            for kind, look in kinds:
                try:
                    return kind, look(name)
                except UnknownPlugin:
                    continue
            raise UnknownPlugin(f"Unknown plugin {name}.") from None
        return found.TYPE, found

    # Lists of plugins.

    def list_plugins(self, *, connectors_only: bool = True) -> list[Plugin]:
        found = [Plugin(name, kind, self._version(name)) for name, (kind, _) in self._connectors.items()]
        found.sort(key=lambda plugin: (plugin.type, plugin.name))
        if connectors_only:
            return found
        tables: list[tuple[str, Iterable[str]]] = [
            ("transformation", self._transforms),
            ("predicate", self._predicates),
            ("converter", self._converters),
            ("header_converter", self._header_converters),
        ]
        return found + [Plugin(name, kind, __version__) for kind, names in tables for name in sorted(names)]

    def names(self, kind: str) -> tuple[str, ...]:
        tables: dict[str, Mapping[str, object]] = {
            "converter": self._converters,
            "header_converter": self._header_converters,
            "transformation": self._transforms,
            "predicate": self._predicates,
        }
        return tuple(sorted(tables[kind]))

    def _version(self, name: str) -> str:
        return __version__ if name in CONNECTORS else self._connectors[name][1]().VERSION

    # Plugins of users.

    def _look_through(self, folder: Path) -> None:
        if not folder.is_dir():
            log.warning("plugin.path names %s, which is no folder", folder)
            return
        for path in sorted(folder.iterdir()):
            if path.suffix == ".py" and path.name != "__init__.py":
                self._add_loaded(str(path), partial(_module, path))
            elif (path / "__init__.py").is_file():
                self._add_loaded(str(path), partial(_module, path / "__init__.py", path))

    def _add_loaded(self, place: str, get: Callable[[], ModuleType | type]) -> None:
        try:
            found = get()
        except Exception as failure:
            # A plugin is a user's code, which may raise anything. It must not keep the other plugins from being used.
            self._failures.append(f"{place} cannot be loaded: {type(failure).__name__}: {failure}")
            log.exception("%s cannot be loaded", place)
        else:
            self._add_classes(_classes(found) if isinstance(found, ModuleType) else [found])

    def _add_classes(self, classes: Iterable[type]) -> None:
        for kind in classes:
            if issubclass(kind, Connector):
                for name in {kind.class_name(), f"{kind.__module__}.{kind.__qualname__}"}:
                    self._connectors[name] = (kind.TYPE, partial(_return, kind))
            elif issubclass(kind, Sided):
                for side in ("Key", "Value"):
                    made = type(f"{kind.__name__}{side}", (kind,), {"IS_KEY": side == "Key"})
                    self._transforms[f"{kind.__module__}.{kind.__qualname__}${side}"] = made
            elif issubclass(kind, Transform):
                self._transforms[f"{kind.__module__}.{kind.__qualname__}"] = kind
            elif issubclass(kind, Predicate):
                self._predicates[f"{kind.__module__}.{kind.__qualname__}"] = kind
            elif issubclass(kind, Converter):
                self._converters[f"{kind.__module__}.{kind.__qualname__}"] = partial(_return, kind)


def _return(kind: type[T]) -> type[T]:
    return kind


def _import_connector(place: str) -> type[Connector]:
    module, _, name = place.partition(":")
    found: type[Connector] = getattr(import_module(f"pessoa.connect.connectors.{module}"), name)
    return found


def _short_names(full: str) -> tuple[str, str]:
    simple = full.rpartition(".")[2]
    return simple, simple.removesuffix("Connector")


def _find(table: Mapping[str, T], name: str, kind: str) -> T:
    if name in table:
        return table[name]
    found = [full for full in table if full.rpartition(".")[2] == name]
    if len(found) == 1:
        return table[found[0]]
    raise UnknownPlugin(
        f"Class {name} could not be found: there is no such {kind}. There are {', '.join(sorted(table))}"
    )


def _load(point: EntryPoint) -> type:
    found: type = point.load()
    return found


def _module(path: Path, package: Path | None = None) -> ModuleType:
    """Import a file as a module, under a name that no file of the same name in another folder has."""
    stem = (package or path.with_suffix("")).name
    known = sys.modules.get(stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    name = stem if known is None else f"{stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    locations = [str(package)] if package else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=locations)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _classes(module: ModuleType) -> list[type]:
    kinds = (Connector, Transform, Predicate, Converter)
    own = [
        one
        for _, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, kinds) and one.__module__.split(".")[0] == module.__name__
    ]
    for one in filter(inspect.isabstract, own):
        # A base of others, or an oversight, which its author will look for.
        missing = ", ".join(sorted(one.__abstractmethods__))
        log.info("%s.%s cannot be used by itself: it has no %s", one.__module__, one.__qualname__, missing)
    return [one for one in own if not inspect.isabstract(one)]
