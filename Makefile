PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Installs what the lock file names, several times as fast as pip.
UV := $(BIN)/uv
# Newer than the default. Delta and Kafka have no connectors for it yet; everything else must work with it.
NEXT_SPARK := 4.3.0
NEXT_SPARK_TESTS := tests/pipeline/source tests/pipeline/test_frames.py tests/pipeline/test_rounds_on_spark.py \
	tests/pipeline/test_session.py

.DEFAULT_GOAL := help
.PHONY: help setup run test test-next-spark check bench demo docs docs-answers package lock clean

help:
	@echo "make setup        create $(VENV) and install the pinned dependencies"
	@echo "make run          serve the directory ./data on http://127.0.0.1:4000"
	@echo "make test         run the tests"
	@echo "make test-next-spark   run the tests of the pipeline with Spark $(NEXT_SPARK)"
	@echo "make check        lint, formatting, types, import layers, language"
	@echo "make bench        run the benchmarks"
	@echo "make demo         a week of a shop, in about a minute and a half"
	@echo "make docs          build the documentation site, which the server serves at /docs"
	@echo "make docs-answers  run the documents and write their answers and tables again"
	@echo "make package       build the packages in ./dist, with the documentation, and check them"
	@echo "make lock         regenerate requirements.lock from pyproject.toml"
	@echo "make clean        remove $(VENV), caches and build output"

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, set PYTHON=...")'
	@echo "Installing the pinned dependencies into $(VENV): about 2 GB, a minute on a usual connection"
	@$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/# via/p' requirements.lock > $(VENV)/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt
	@$(UV) pip install --system-certs --python $(BIN)/python --require-hashes -r requirements.lock
	@$(UV) pip install --system-certs --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

run: $(STAMP)
	$(BIN)/strandline serve --data data

test: $(STAMP)
	$(BIN)/python -m pytest -n 2

test-next-spark: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
		--target $(VENV)/spark-$(NEXT_SPARK) pyspark==$(NEXT_SPARK)
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-$(NEXT_SPARK) $(BIN)/python -m pytest -n 2 $(NEXT_SPARK_TESTS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_language.py

bench: $(STAMP)
	$(BIN)/python -m bench

demo: $(STAMP)
	$(BIN)/strandline demo

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-answers: $(STAMP)
	for module in document_tables served_guides pipeline_guide; do \
		PYTHONPATH=tests $(BIN)/python -m support.$$module || exit 1; \
	done

# Both packages are the same for the same commit: files have its time.
package: docs
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build -d dist
	$(BIN)/twine check --strict dist/*

# The resolver lives in a throwaway environment. Existing pins are kept where they still
# fit; `make lock LOCK_FLAGS=--upgrade` moves everything to the newest versions.
lock:
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(PYTHON) -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv; \
	"$$tmp/venv/bin/uv" pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
		--generate-hashes --no-emit-index-url --no-emit-find-links --extra dev \
		--custom-compile-command "make lock" $(LOCK_FLAGS) \
		--output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist strandline/server/site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find strandline tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
