PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo help test quick check env env-test browser lock models results clean

# Four digits reconstructed, with a report of each in the folder demo.
demo: env
	$(BIN)/latentuq demo -o demo --force

# Lists what make can do, and the studies.
help: env
	@awk '/^#/ { text = text substr($$0, 2) } \
		/^[a-z-]+:/ { if (text) printf "make %-9s%s\n", substr($$1, 1, index($$1, ":") - 1), text } \
		!/^#/ { text = "" }' $(MAKEFILE_LIST)
	@$(BIN)/python -m studies

# Runs all checks and tests.
test: env-test browser check
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Checks style and runs the tests that take less than three seconds each.
quick: env-test browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

# Checks style and types.
check: env-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

# Installs latentuq and what it needs into .venv.
env: $(VENV)/.installed
# Installs what tests and studies need as well.
env-test: $(VENV)/.installed-test

# Installs Debian's browser, which tests of the page need, if there is none.
browser:
	@command -v chromium > /dev/null || (apt-get update -qq && apt-get install -y -qq chromium)

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

# Trains the embedded models anew and checks them (about an hour on two cores; an interrupted run
# continues with the same command and --resume).
models: env
	for name in mnist mnist-paper fashion-mnist; do \
		data=$${name%-paper}; $(BIN)/latentuq data fetch $$data && \
		$(BIN)/latentuq train $$data --config configs/$$name.toml --no-check \
			-o src/latentuq/models/$$name.safetensors --force || exit; \
	done
	for name in mnist fashion-mnist; do \
		$(BIN)/latentuq calibrate --model $$name --images $$name --count 40 --keep \
			-o $$(mktemp -d) || exit; \
	done

# Measures what is missing in docs/results and writes its pages.
results: env-test browser
	$(BIN)/python -m studies priors
	$(BIN)/python -m studies references
	$(BIN)/python -m studies inference
	$(BIN)/python -m studies reports
	$(BIN)/python -m studies verdicts
	$(BIN)/python -m studies page
	$(BIN)/python -m studies dimensions
	$(BIN)/python -m studies scale
	$(BIN)/python -m studies bench --methods all --repeats 5 --scaling
	$(BIN)/python -m studies reproduce

# Writes the lock files anew from pyproject.toml.
lock: $(BIN)/python
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --no-header --all-build-deps -o requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --no-header --extra test -c requirements.lock -o requirements-test.lock pyproject.toml

# Removes the environment and the demo.
clean:
	rm -rf $(VENV) demo
