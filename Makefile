PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check env env-test lock models results clean

demo: env
	$(BIN)/latentuq demo -o demo --force

test: env-test check
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: env-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

env: $(VENV)/.installed
env-test: $(VENV)/.installed-test

# The stamps are newer than the lock files once everything in them is installed.
$(VENV)/.installed: $(BIN)/python pyproject.toml requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed requirements-test.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-test.lock
	touch $@

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "latentuq needs Python 3.11 or later; name one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

# Trains the embedded models anew (about an hour on two cores; an interrupted run continues with
# the same command and --resume).
models: env
	for name in mnist mnist-paper fashion-mnist; do \
		data=$${name%-paper}; $(BIN)/latentuq data fetch $$data && \
		$(BIN)/latentuq train $$data --config configs/$$name.toml \
			-o src/latentuq/models/$$name.safetensors --force || exit; \
	done

# Measures what is missing in docs/results and writes its pages.
results: env-test
	$(BIN)/python -m studies.priors
	$(BIN)/python -m studies.references
	$(BIN)/python -m studies.inference
	$(BIN)/python -m studies.reports
	$(BIN)/latentuq bench --methods all --scaling -o docs/results
	$(BIN)/latentuq reproduce -o docs/results

# Writes the lock files anew from pyproject.toml.
lock: $(BIN)/python
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --no-header --all-build-deps -o requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --no-header --extra test -c requirements.lock -o requirements-test.lock pyproject.toml

clean:
	rm -rf $(VENV) demo
