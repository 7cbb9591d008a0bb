# The daily verbs; `make` alone prints them. Every verb sets up .venv first if it has to.
PYTHON ?= python3
VENV := .venv
RIG := $(VENV)/bin/vertexrig
READY := $(VENV)/.ready
SET ?=
RUN ?=
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)
SETS = $(foreach pair,$(SET),--set $(pair))
JOBS := cpu gpu multi-gpu multi-worker parameter-server tpu

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-trigger function serve-function sweep grid test test-old check lint types bench reference lock wheel clean $(JOBS:%=%-job)

help: ## Print these verbs
	@echo "make VERB   (SET=\"key=value ...\" overrides keys; RUN=local also rehearses, RUN=cloud also submits)"
	@echo
	@awk -F ':.*## ' '/^[a-z% -]+:.*## / {printf "  %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  NAME is one of: $(JOBS), or any other job of vertexrig.yaml"

setup: $(READY) ## Make .venv with everything (other verbs do it when needed)

$(READY): setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "vertexrig needs Python 3.10 or newer; this is %s. Name another one: make PYTHON=python3.12 ..." % sys.version.split()[0])'
	@echo "setting up $(VENV): TensorFlow and the Google Cloud clients take one to four minutes, once"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --quiet --progress-bar on -c constraints.txt -e ".[dev]"
	@$(VENV)/bin/python -m compileall -q vertexrig templates
	@touch $@

%-job: $(READY) ## Render and check job NAME of vertexrig.yaml: make NAME-job
	@$(RIG) render $* $(SETS)
	@$(if $(filter local,$(RUN)),$(RIG) rehearse $* $(SETS))
	@$(if $(filter cloud,$(RUN)),$(RIG) submit $* $(SETS))

sweep grid: $(READY) ## Render and check the sweep of that name
	@$(RIG) render $@ $(SETS)
	@$(if $(filter local,$(RUN)),$(RIG) rehearse $@ $(SETS))
	@$(if $(filter cloud,$(RUN)),$(RIG) submit $@ $(SETS))

demo: $(READY) ## Render, check and explain the jobs, then really train one on this machine
	@echo "== every job and sweep of vertexrig.yaml, rendered and checked into build/jobs/"
	@$(RIG) render $(JOBS) sweep grid
	@echo; echo "== the cluster that job multi-worker makes"
	@$(RIG) explain multi-worker
	@echo; echo "== the trainer, packaged for the image of job cpu"
	@$(RIG) package cpu
	@echo; echo "== job cpu, run on this machine from build/jobs/cpu.yaml as Vertex AI would run it"
	@$(RIG) rehearse cpu
	@echo; echo "== sweep, four short trials of it, two at a time"
	@$(RIG) rehearse sweep --trials 4 --quiet --set args.epochs=3 --set parallel_trial_count=2

demo-trigger: $(READY) ## A scheduled run and an HTTP sweep, end to end on this machine
	@$(VENV)/bin/python bench/demo_trigger.py

function: $(READY) ## Stage the Cloud Function into build/function/
	@$(RIG) function build

serve-function: $(READY) ## Serve the staged function on this machine against the local Vertex
	@$(RIG) function serve

test: $(READY) ## Run the tests
	@$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal

test-old: $(READY) ## Run the trainer's tests on Python 3.10 with TensorFlow 2.17, as in the newest prebuilt container
	@test -e build/venv-tf2.17/.ready || sh tests/trainer/old_python.sh build/venv-tf2.17
	@TRAINER_OLD_PYTHON=$(CURDIR)/build/venv-tf2.17/bin/python $(VENV)/bin/python -m pytest tests/trainer/test_trainer_package.py

check: lint types test ## Lint, types, tests

lint: $(READY) ## ruff
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

types: $(READY) ## mypy, strict
	@$(VENV)/bin/mypy

bench: $(READY) ## Ratios against real peers, one table
	@$(VENV)/bin/python bench/run.py

reference: $(READY) ## Generate the reference pages in docs/
	@$(VENV)/bin/python -m tools.project_file_page > docs/project-file.md.new && mv docs/project-file.md.new docs/project-file.md
	@$(VENV)/bin/python -m tools.checks_page > docs/checks.md.new && mv docs/checks.md.new docs/checks.md
	@$(VENV)/bin/python -m tools.coverage_page > docs/local-coverage.md.new && mv docs/local-coverage.md.new docs/local-coverage.md

wheel: $(READY) ## Build the tool's wheel into dist/
	@$(VENV)/bin/python -m build --wheel --outdir dist

lock: ## Make constraints.txt anew (needs uv)
	@uv pip compile --universal --python-version 3.10 --extra dev --no-header --no-annotate --quiet setup.py -o constraints.new
	@(echo "# Every dependency of every extra, for Python 3.10 and newer. Made by: make lock"; cat constraints.new) > constraints.txt
	@rm constraints.new

clean: ## Remove build products and the state of rehearsals; .venv stays
	@rm -rf build dist .vertexrig *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
