# What there is to run. Needs only make and a Python >= 3.11 with venv; everything else goes into .venv.
#
# .venv is made from requirements.lock, with hashes, so that every machine has the same set. The stamp file remembers
# that it was made, and make rebuilds it when the lock or pyproject.toml is newer. After that, nothing touches the network.

SHELL      := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS  += --no-print-directory

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
# The first of these that is new enough makes .venv. `make setup PYTHON=python3.13` chooses one.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python,$(if $(shell $(p) -c 'import sys, venv, ensurepip; print(sys.version_info >= (3, 11) or "")' 2>/dev/null),$(p))))
# Only `make lock` needs uv, so it has an environment of its own, and one version.
UV_VERSION := 0.13.7
UV_VENV    := build/uv

# Sets of strings come out in the same order in every run, so a failing seed fails again.
export PYTHONHASHSEED := 0
# Compiled once: otherwise every process that a test starts compiles all of it again, which takes longer than its start.
unexport PYTHONDONTWRITEBYTECODE
# Users do not have it, and it hides what is printed in the wrong order.
unexport PYTHONUNBUFFERED

# The number of worker processes for tests; the machines we test on have two cores.
WORKERS ?= 2
# Tests wait for processes as much as they compute: one more than there are cores. Slow ones come first, so who is idle
# takes from who is not.
PYTEST  := $(BIN)/python -m pytest -n $$(($(WORKERS) + 1)) --dist worksteal
ARGS    ?=

.PHONY: help setup up test quick spark check lint unit bench fuzz sim sim-log chaos connections pipelines-chaos clients versions lock clean system

help:  ## list what there is to run
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The lock names everything, so nothing is resolved. PySpark is half of it and has to be built first, beside the rest;
# and pip would compile, on one core, modules that are never imported.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile
LOCKED   = --require-hashes -r <(awk '/^[^ \#]/ { big = /^pyspark==/ } $(1)' requirements.lock)
setup: $(STAMP)  ## make .venv from the lock file (the others do this first)

$(STAMP): requirements.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
	    echo "Pessoa needs Python 3.11 or newer with the venv module, and none was found on PATH" \
	         "(on Debian: apt-get install python3 python3-venv). Name one with: make setup PYTHON=/path/to/python3"; \
	    exit 1; \
	fi
	@if ! $(BIN)/python -c '' 2>/dev/null; then \
	    echo "making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); \
	fi
	@echo "installing what requirements.lock names; the first time takes a few minutes"
	@$(INSTALL) $(call LOCKED,big) & spark=$$!; failed=0; \
	$(INSTALL) $(call LOCKED,!big) || failed=$$?; wait $$spark || failed=$$?; exit $$failed
	@$(BIN)/python -m pip check --quiet --disable-pip-version-check
	@$(BIN)/python -m compileall -qq -j $(WORKERS) -x '/tests?/' $(VENV)/lib || true
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

up: setup  ## start the platform, say what is where; Ctrl-C stops it
	@exec $(BIN)/pessoa up $(ARGS)

# A shell that others wrote, for the test that tries it with our tools. pip would leave what it finds there as it is.
KAFKA_SHELL := build/kafka-shell/.stamp
$(KAFKA_SHELL): tools/kafka-shell.lock | $(STAMP)
	@rm -rf $(@D)
	@$(INSTALL) --require-hashes --target $(@D) -r $<
	@touch $@

# The ksqlDB client of PyPI, for the test that tries it with our server. It is built with the setuptools beside it.
KSQL_CLIENT := build/ksql-client/.stamp
KSQL_LOCKED  = --require-hashes --target $(@D) -r <(awk '/^[^ \#]/ { client = /^ksql==/ } $(1)' $<)
$(KSQL_CLIENT): tools/ksql-client.lock | $(STAMP)
	@rm -rf $(@D)
	@$(INSTALL) $(call KSQL_LOCKED,!client)
	@PYTHONPATH=$(CURDIR)/$(@D) $(INSTALL) --no-build-isolation $(call KSQL_LOCKED,client)
	@touch $@

# A Go where the system has none, for PESSOA_OTHER_REGISTRIES=1. What cannot be had is no failure: the tests that want
# it say why they were skipped.
GO := build/go/.stamp
$(GO): tools/go.lock | $(STAMP)
	@rm -rf $(@D); mkdir -p $(@D)
	@command -v go >/dev/null || $(INSTALL) --require-hashes --target $(@D) -r $< || \
	    echo "Go could not be had, so the tests of the Go clients will be skipped"
	@touch $@

# A line that says $(MAKE) is run by `make -n` as well. The first may be, since that is passed on; the second may not.
test:  ## run every check and every test
	@$(MAKE) --silent -j2 system $(KAFKA_SHELL) $(KSQL_CLIENT) $(if $(filter-out 0,$(PESSOA_OTHER_REGISTRIES)),$(GO))
	@BIN=$(BIN) MAKE=$(MAKE_COMMAND) tools/run-tests $(WORKERS) "$(SPARK_TESTS)" $(ARGS)

# What finds most in a minute of it: decisions, every API, a few real clusters, clients and services, and 200 seeds.
QUICK_TESTS := tests/unit tests/simulation \
    $(addprefix tests/property/test_,every_api.py frames.py log_crashes.py raft.py replication.py records_round_trip.py) \
    $(addprefix tests/cluster/test_,architecture_calls.py processes.py roles.py settings_take_effect.py three_brokers.py) \
    tests/conformance/test_confluent_kafka.py tests/services/test_attacks.py tests/tools/test_commands.py
quick: export PESSOA_SIM_SEEDS ?= 200
quick: setup  ## the most telling tenth of `make test`; under 8 minutes
	@BIN=$(BIN) MAKE=$(MAKE_COMMAND) tools/run-tests $(WORKERS) "" $(QUICK_TESTS) $(ARGS)

# A Spark wants both cores for itself: beside other tests its Python workers miss deadlines that it does not let us set.
SPARK_TESTS := tests/streams \
    $(addprefix tests/pipelines/test_,api.py engine.py kill_minus_nine.py real_time_kill_minus_nine.py real_time_state.py standalone_cluster.py) \
    $(addprefix tests/connect/test_,connectors_on_spark.py kill_minus_nine.py more_connectors_on_spark.py) \
    $(addprefix tests/ksql/test_on_spark_,apache.py case_streams.py cases.py expressions.py kill_minus_nine.py ordered.py queries.py) \
    tests/ksql/test_ksql_tutorials_on_spark.py tests/browser/test_services_pages.py
spark: system setup  ## the tests of pipelines, Streams and Connect with a real Spark
	@$(BIN)/python -m pytest $(SPARK_TESTS) $(ARGS)

check: lint unit  ## lint, types, import direction and unit tests

lint: setup  ## ruff, mypy --strict and the import contracts
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python tools/import_contracts.py

unit: setup  ## the unit tests alone
	@$(PYTEST) tests/unit $(ARGS)

bench: setup  ## measure; make bench ARGS="micro_wire" for one part
	@$(BIN)/python -m bench $(ARGS)

# `make fuzz PESSOA_FUZZ_EXAMPLES=100000` for a long night.
fuzz: export PESSOA_FUZZ_EXAMPLES ?= 5000
fuzz: setup  ## the property tests with far more examples
	@$(PYTEST) --hypothesis-profile=fuzz tests/property $(ARGS)

# `make sim SEEDS=1-100000` for a long night, `make sim SEED=123 TRACE=1` to see one run.
SEEDS ?= 1-2000
sim: setup  ## whole clusters from seeds: crashes, partitions, torn writes; nothing acknowledged may be lost
	@$(BIN)/python -m tests.simulation --workers $(WORKERS) \
	    $(if $(SEED),--seed $(SEED) $(if $(TRACE),--trace),--seeds $(SEEDS)) $(ARGS)

# `make chaos MINUTES=60 SEED=7`, or ARGS='--only "kill all"'.
MINUTES ?= 10
chaos: setup  ## three broker processes under load: killed, cut off, damaged, without power; then all is read back
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# As many connections at once as there should be room for; the suite has a tenth.
connections: export PESSOA_CONNECTIONS ?= 10000
connections: setup  ## 10,000 idle connections: what each takes, and the p99 of a client beside them
	@$(BIN)/python -m pytest -q tests/attacks/test_idle_connections.py $(ARGS)

sim-log: export PESSOA_FUZZ_EXAMPLES ?= 5000
sim-log: setup  ## partition logs through crashes and power losses, many more steps
	@$(PYTEST) --hypothesis-profile=fuzz tests/property/test_log_machine.py tests/property/test_log_crashes.py $(ARGS)

pipelines-chaos: export PESSOA_PIPELINES_ROUNDS ?= 10
pipelines-chaos: setup  ## Spark, the engine and the broker killed again and again under exactly-once pipelines
	@$(BIN)/python -m pytest tests/pipelines/test_kill_minus_nine.py -q $(ARGS)

clients: setup  ## write docs/CLIENTS.md: which client was seen to do what
	@$(BIN)/python -m tests.conformance.features

# `make versions VERSIONS=3.13`, or ARGS="tests/cluster" in place of the unit tests.
VERSIONS ?= 3.11 3.12 3.13
versions:  ## the wheel, its fixtures and the unit tests on every Python that is promised
	@MAKE=$(MAKE) tools/check-versions $(WORKERS) "$(VERSIONS)" $(ARGS)

lock: $(UV_VENV)/bin/uv  ## pin every dependency anew, into requirements.lock
	@$(UV_VENV)/bin/uv pip compile pyproject.toml --extra dev --extra all --universal --python-version 3.11 --upgrade \
	    --generate-hashes --no-emit-index-url --quiet \
	    --custom-compile-command "make lock" --output-file requirements.lock

$(UV_VENV)/bin/uv:
	@$(PYTHON) -m venv $(UV_VENV)
	@$(UV_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# On Debian as root this installs the Java that some tests want; anywhere else those tests say why they were skipped.
system:
	@tools/install-system-packages

clean:  ## remove .venv and everything that was built or cached
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
