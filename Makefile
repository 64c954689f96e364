# Everything runs in a virtual environment of the project's own, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= .data

.PHONY: serve test half-with-hosts half-with-clusters test-here test-cluster test-hosts matrix check bench bench-clusters bench-deploy guard protos differential simulate simulate-planted clean

serve: $(VENV)/.server ## the server on the embedded store; ARGS="--listen ..." for flags
	@$(BIN)/pbserver serve --store "lmdb:$(DATA)" $(ARGS)

HERE ?= conformance layers differential isolation simulation faults e2e guard
#: Where so many have failed something is wrong with all, and each of the others may wait for minutes.
ENOUGH := --maxfail=10
#: These go with the clusters, so that both halves take about as long.
COMPUTED := simulation faults guard

# Databases mostly wait, so their suites run beside what computes; each of the two halves has one cluster up at a time.
test: export FAILURES = $(CURDIR)/.failures
test: $(VENV)/.test ## everything
	@rm -f $(FAILURES)
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory --jobs=2 half-with-hosts half-with-clusters || { cat $(FAILURES) 2>/dev/null; exit 1; }

half-with-hosts: $(VENV)/.test
	$(MAKE) --no-print-directory --jobs=1 test-here test-hosts HERE="$(filter-out $(COMPUTED),$(HERE))"

half-with-clusters: $(VENV)/.test
	$(MAKE) --no-print-directory --jobs=1 test-cluster test-here HERE="$(COMPUTED)"

test-here: $(VENV)/.test ## what needs no database: conformance, layers, differential, isolation, simulation, faults, e2e, guard
	$(BIN)/python -m pytest --durations=10 $(addprefix tests/,$(HERE))

test-cluster: $(VENV)/.test ## DB=..: a database's real cluster, and the whole suite on it
	$(BIN)/python -m pytest --durations=10 --timeout=900 $(ENOUGH) tests/clusters $(if $(DB),-k "$(DB)")

test-hosts: $(VENV)/.test ## DB=galera, cassandra, hbase or limits: pbdeploy and a cluster on several machines, which are namespaces here
	$(BIN)/python -m pytest --durations=10 --timeout=900 $(ENOUGH) tests/hosts $(if $(DB),-k "$(DB)")

matrix: $(VENV)/.test ## the suites over real databases, and the README's support matrix from what they have proven
	CLUSTER_RESULTS=tests/clusters/results $(BIN)/python -m pytest --timeout=600 tests/clusters -k "_store"
	$(BIN)/python -m tests.clusters.matrix

check: $(VENV)/.test ## the fast loop: format, lint, imports, types, unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2 tests/unit

bench: $(VENV)/.bench ## the measurements of README.md and the page of all results; ARGS="--small" for a quick pass
	$(BIN)/python -m bench $(ARGS)
	$(BIN)/python -m bench.page

bench-clusters: $(VENV)/.bench $(VENV)/.deploy ## DB=..: pbserver beside the native drivers of real databases; ARGS="--small" for a look
	$(BIN)/python -m bench.clusters $(DB) $(ARGS)

bench-deploy: $(VENV)/.bench $(VENV)/.test ## CLUSTER=mysql-3 ..: how long pbdeploy takes from nothing to the first entity, and to mend a node; as root
	$(BIN)/python -m bench.deploy $(CLUSTER)

guard: $(VENV)/.test ## instructions of a request, counted by callgrind; RENEW=1 keeps the figures to compare with
	$(BIN)/python -m tests.guard $(if $(RENEW),--renew)

differential: $(VENV)/.test ## SEED=.. CALLS=..: a longer run against Google's own implementation
	DIFFERENTIAL_SEED=$(or $(SEED),1) DIFFERENTIAL_CALLS=$(or $(CALLS),5000) \
		$(BIN)/python -m pytest -q --timeout=0 tests/differential

simulate: $(VENV)/.test ## FROM=.. SEEDS=.. STORE=..: the commit protocol under a seeded scheduler; a failing seed plays the same again
	$(BIN)/python -m tests.simulation --from $(or $(FROM),0) --seeds $(or $(SEEDS),2000) $(if $(STORE),--store $(STORE))

simulate-planted: $(VENV)/.test ## how soon the simulation finds each of the bugs planted into the protocol
	$(BIN)/python -m tests.simulation --planted --seeds $(or $(SEEDS),1000)

protos: $(VENV)/.protos ## regenerates protos/*_pb2.py from protos/*.proto
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. protos/*.proto

clean: ## removes the environment and the caches, never data
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .failures

$(VENV)/.made:
	@sh deploy/make_venv.sh "$(PYTHON)" "$(VENV)"
	@touch $@

$(VENV)/.server: $(VENV)/.made setup.py
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.%: $(VENV)/.server
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[$*]"
	@touch $@
