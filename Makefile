# Everything runs from .venv, which the targets make and keep up to date by themselves.

PYTHON ?= python3
ARGS ?=
SECONDS ?= 180
WORKERS ?= 3
BIN := .venv/bin
DJANGO := 4.2 5.2 6.0 6.1
COVERING := tests/core tests/worker tests/conformance tests/handlers/test_context.py tests/scheduler/test_housekeeping.py tests/end_to_end/test_process_handlers.py
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
COMPILE := $(BIN)/uv --quiet pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header

# Tests start thousands of processes. Without compiled files each of them compiles demora anew, which takes longer than most tests.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run test campaigns check prove coverage bench sim chaos fuzz django mutants browser screenshots lint types setup lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

run: .venv/run.stamp ## start the service: make run ARGS="--port 9000"
	@$(BIN)/demora serve $(ARGS)

test: lint types ## run all tests but the campaigns
	$(BIN)/pytest -n $(WORKERS) -m "not timed and not campaign" $(ARGS)
	$(BIN)/pytest -m timed $(ARGS)

campaigns: .venv/dev.stamp ## simulate faults, and cause real ones, for some minutes
	$(BIN)/pytest -n 2 --dist loadscope -m campaign $(ARGS)

prove: .venv/dev.stamp ## look for new counterexamples: make prove SECONDS=600
	$(BIN)/python -m tests.prove --seconds $(SECONDS) $(ARGS)

check: lint types ## run the quick part: no slow tests
	$(BIN)/pytest -n $(WORKERS) -m "not slow" $(ARGS)

coverage: .venv/dev.stamp ## see that core, worker and scheduler are tried branch by branch
	$(BIN)/pytest --cov -n 2 $(COVERING) $(ARGS)

bench: .venv/dev.stamp ## measure: make bench ARGS="…"
	$(BIN)/python -m bench $(ARGS)

sim: .venv/dev.stamp ## simulate: make sim ARGS="--seeds 10000 --jobs 200"
	$(BIN)/python -m tests.sim $(ARGS)

chaos: .venv/dev.stamp ## break real processes: make chaos ARGS="--minutes 2"
	$(BIN)/python -m tests.chaos $(ARGS)

fuzz: .venv/dev.stamp ## send random requests: make fuzz ARGS="--requests 1000000"
	$(BIN)/python -m tests.fuzz $(ARGS)

django: .venv/dev.stamp ## run the tests of Django on each of its versions
	$(BIN)/python -m tests.contrib.django_versions $(ARGS)

mutants: .venv/dev.stamp ## plant bugs, and see what catches each
	$(BIN)/python -m tests.mutants $(ARGS)

browser: ## install Chromium and nginx for the tests of the dashboard, if there are none
	@command -v chromium chromium-browser google-chrome >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	@command -v nginx >/dev/null || { apt-get update -qq && apt-get install -y -qq nginx-light || apt-get install -y -qq nginx; }

screenshots: .venv/dev.stamp ## draw each page of the dashboard: make screenshots ARGS=FOLDER
	$(BIN)/python -m tests.dashboard.screenshots $(ARGS)

lint: .venv/dev.stamp ## check style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/dev.stamp ## check types
	$(BIN)/mypy

setup: .venv/dev.stamp ## make .venv with all that development needs

lock: | $(BIN)/python ## pin the requirements anew: make lock ARGS=--upgrade
	@$(PIP) uv
	$(COMPILE) $(ARGS) pyproject.toml -o requirements/run.txt
	$(COMPILE) $(ARGS) --group build -o requirements/build.txt
	$(COMPILE) $(ARGS) pyproject.toml --extra all --extra dev --group build -o requirements/dev.txt
	$(COMPILE) $(ARGS) -c requirements/dev.txt --no-emit-package django --group build --group django -o requirements/django.txt
	for version in $(DJANGO); do echo "django~=$$version.0" | \
		$(subst 3.11,3.12,$(COMPILE)) $(ARGS) --no-deps - -o requirements/django-$$version.txt; done

clean: ## remove .venv, caches and builds; databases stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@echo "Making .venv"
	@$(PYTHON) -m venv .venv

# The lock files name every package, so pip resolves nothing. Older pips would: for an extra they pick a release newer than the pin,
# and then refuse it.
.venv/run.stamp: pyproject.toml requirements/run.txt requirements/build.txt | $(BIN)/python
	@echo "Installing requirements/run.txt"
	@$(PIP) --no-deps --require-hashes -r requirements/run.txt -r requirements/build.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev.stamp: pyproject.toml requirements/dev.txt | $(BIN)/python
	@echo "Installing requirements/dev.txt"
	@$(PIP) --no-deps --require-hashes -r requirements/dev.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ .venv/run.stamp
