# The daily verbs; `make` alone prints them. Each verb installs what it needs into .venv first.
PYTHON ?= python3
VENV := .venv
RIG := $(VENV)/bin/vertexrig
SET ?=
RUN ?=
TESTS ?=
BENCH ?=
PORT ?= 8080
ACCEPT ?=
ROWS ?=
MUTATE ?=
# Many tests wait for a process or a server rather than for a core: one worker more than cores.
WORKERS ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 1)))
RERUNS ?=
SINCE ?=
RERUN = $(if $(RERUNS),--reruns $(RERUNS))
SETS = $(foreach pair,$(SET),--set $(pair))
JOBS := cpu gpu multi-gpu multi-worker parameter-server tpu

ifneq ($(filter-out local cloud,$(RUN)),)
$(error RUN=$(RUN) is unknown; the choices are RUN=local, which rehearses, and RUN=cloud, which submits)
endif

# The tiers of .venv, smallest first (tools/venv.py lists their packages). A larger tier that is installed includes the
# smaller ones, and is the one that is updated.
READY := $(VENV)/.ready
LOCAL := $(firstword $(wildcard $(READY)) $(VENV)/.local)
CLOUD := $(firstword $(wildcard $(READY) $(VENV)/.local) $(VENV)/.cloud)
BASE := $(firstword $(wildcard $(READY)) $(wildcard $(VENV)/.local) $(wildcard $(VENV)/.cloud) $(VENV)/.base)
TIER_OF_RUN = $(if $(filter local,$(RUN)),$(LOCAL),$(if $(filter cloud,$(RUN)),$(CLOUD),$(BASE)))

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-trigger demo-day-two demo-candidates demo-approval demo-containers function serve-function sweep grid test test-all coverage test-old test-clients test-image attack check lint types bench fidelity reference docs lock wheel release clean FORCE

help: ## Print this list
	@echo "make VERB   (SET=\"key=value ...\" overrides keys; RUN=local also rehearses, RUN=cloud also submits)"
	@echo
	@awk -F ':.*## ' '/^[a-z% -]+:.*## / {sub(/%/, "NAME", $$1); printf "  %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  NAME is one of: $(JOBS), or any other job of vertexrig.yaml"

# For an unknown verb: name the nearest one, instead of make's "No rule to make target".
VERBS = $(filter-out FORCE,$(shell awk '/^\.PHONY:/ {for (i = 2; i <= NF; i++) print $$i}' Makefile)) $(JOBS:=-job)
.DEFAULT:
	@$(PYTHON) -c 'import difflib, sys; word, *verbs = sys.argv[1:]; near = difflib.get_close_matches(word, verbs, 1); sys.exit("make has no verb %s. %s" % (word, "Did you mean make %s?" % near[0] if near else "make alone prints the verbs."))' '$@' $(VERBS)

setup: $(READY) ## Install everything into .venv (the other verbs install only what they need)

$(VENV)/.base: TIER := base
$(VENV)/.cloud: TIER := cloud
$(VENV)/.local: TIER := local
$(VENV)/.ready: TIER := all
$(VENV)/.base $(VENV)/.cloud $(VENV)/.local $(VENV)/.ready: setup.py constraints.txt tools/venv.py tools/tensorflow_cpu/setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "vertexrig needs Python 3.10 or newer; this is %s. Name another one: make PYTHON=python3.12 ..." % sys.version.split()[0])'
	@$(PYTHON) tools/venv.py $(TIER)

# A pattern rule: a phony target would not be looked up here.
%-job: FORCE $(TIER_OF_RUN) ## Render and check job NAME of vertexrig.yaml
	@$(RIG) render $* $(SETS)
	@$(if $(filter local,$(RUN)),$(RIG) rehearse $* $(SETS))
	@$(if $(filter cloud,$(RUN)),$(RIG) submit $* $(SETS))

FORCE:

sweep grid: $(TIER_OF_RUN) ## Render and check the sweep of that name
	@$(RIG) render $@ $(SETS)
	@$(if $(filter local,$(RUN)),$(RIG) rehearse $@ $(SETS))
	@$(if $(filter cloud,$(RUN)),$(RIG) submit $@ $(SETS))

demo: $(LOCAL) ## Render, check and explain the jobs, then train on this machine. Needs 2 cores and 4 GB of memory, no cloud account and no GPU; takes 1 minute and 20 seconds the first time, installation included
	@bash tools/demo.sh

demo-trigger: $(LOCAL) ## Run a scheduled sweep on this machine; its best trial is promoted, evaluated and registered
	@$(VENV)/bin/python bench/demo_trigger.py

demo-day-two: $(LOCAL) ## Show on this machine why a scheduled run failed, in seven cases, and what `schedule status` says of each
	@$(VENV)/bin/python bench/demo_day_two.py

demo-candidates: $(LOCAL) ## Run a job with candidates on a local Vertex that lacks machines
	@$(VENV)/bin/python bench/demo_candidates.py

demo-approval: $(LOCAL) ## Show on this machine how a scheduled model waits for approval, is approved over HTTP, and is rolled back
	@$(VENV)/bin/python bench/demo_approval.py

demo-containers: $(LOCAL) ## Run jobs and a study in containers on this machine, with images of docker, gcloud builds submit and autopackaging. Needs gcloud, and docker, podman or nerdctl; takes 1 minute
	@$(VENV)/bin/python bench/demo_containers.py

function: $(BASE) ## Build the Cloud Function into build/function/
	@$(RIG) function build

serve-function: $(LOCAL) ## Serve the built function on this machine, with the local Vertex; PORT=8080 by default
	@$(RIG) local up --detach
	@eval "$$($(RIG) local env)" && $(RIG) function package
	@$(RIG) function serve --port $(PORT)

# `make test` leaves out tests marked `whole` (pyproject.toml), which run something from end to end and take seconds of
# processor time. With TESTS exactly the named tests run, marked or not.
PYTEST = $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(RERUN)
# With AGAIN=1, tests that failed (exit code 1 of pytest) run once more after all others have ended.
QUIET = $(if $(AGAIN),|| { [ $$? -eq 1 ] && echo "running the failed tests once more:" && $(VENV)/bin/python -m pytest --last-failed --last-failed-no-failures none; })
test: $(READY) ## Run the tests, without the end-to-end ones. Needs no cloud account; takes 7 minutes on 2 idle cores the first time, installation included. TESTS="tests/vertexrig/render -k tpu" runs exactly those, SINCE=main leaves out those of localvertex if no change since main affects it
	@$(if $(TESTS),,echo "make test needs no cloud account and no GPU. It takes about 7 minutes on 2 idle cores.")
	@$(PYTEST) $(or $(TESTS),-m "not whole" $(if $(SINCE),$(shell $(VENV)/bin/python tools/affected.py $(SINCE))))

test-all: $(READY) ## Run every test, also of whole clusters, sweeps, pages and set-ups, and print which took longest
	@$(PYTEST) --durations=50 --durations-min=5 $(TESTS) $(QUIET)

# The least percentage is `fail_under` in pyproject.toml. A part of the tests (TESTS), or the coverage of one folder
# (COVER=vertexrig/render), is only printed.
coverage: $(READY) ## Run the tests of `make test`, and print the coverage of both packages; it fails if the coverage has fallen
	@$(PYTEST) $(or $(TESTS),-m "not whole") $(addprefix --cov=,$(or $(COVER),vertexrig localvertex)) --cov-report=term:skip-covered $(if $(TESTS)$(COVER),--cov-fail-under=0)

test-old: $(READY) ## Run the trainer's tests on Python 3.10 with TensorFlow 2.17, as in the newest prebuilt container
	@test -e build/venv-tf2.17/.ready || sh tests/trainer/old_python.sh build/venv-tf2.17
	@TRAINER_OLD_PYTHON=$(CURDIR)/build/venv-tf2.17/bin/python $(VENV)/bin/python -m pytest $(RERUN) $(or $(TESTS),tests/trainer/test_trainer_package.py)

# Each client is installed into its own folder below build/clients; a client whose registry cannot be reached is named.
test-clients: $(READY) ## Run unchanged programs (Node, Java, gsutil, ...) against the local Vertex
	@$(VENV)/bin/python -m tests.clients.install build/clients
	@TEST_CLIENTS=$(CURDIR)/build/clients $(VENV)/bin/python -m pytest $(RERUN) $(or $(TESTS),tests/clients)

# The same tests run shorter in `make test`. TESTS names other tests.
ATTACKS := tests/attacks tests/vertexrig/submit/test_protocol.py tests/vertexrig/submit/test_budget.py tests/vertexrig/runs/test_runs_explored.py tests/vertexrig/trigger/test_trigger_generated.py tests/vertexrig/render/test_render.py tests/repository/test_newcomer.py
attack: $(READY) ## Run the attacks on trigger, claims, budgets and local Vertex ten times as long
	@ATTACK=long $(PYTEST) --timeout=0 $(or $(TESTS),$(ATTACKS))

# Debian's packages: buildah, debootstrap. The base image and the layers are kept below build/test-image.
test-image: $(READY) ## Build the images of three trainers with buildah, and run each; needs root, and takes minutes
	@mkdir -p build/test-image
	@TEST_IMAGE=$(CURDIR)/build/test-image $(VENV)/bin/python -m pytest -rs $(RERUN) $(or $(TESTS),tests/vertexrig/package/test_image_built.py)

check: lint types test ## Run lint, types and test

lint: $(READY) ## Lint, and check the formatting, with ruff
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

types: $(READY) ## Check the types with mypy, strictly
	@$(VENV)/bin/mypy

bench: $(READY) ## Measure speed against other programs, in one table; BENCH=render measures one row
	@$(VENV)/bin/python bench/run.py $(BENCH)

fidelity: $(READY) ## Compare the local Vertex with the real service; ROWS='trial-*' selects rows, ACCEPT=1 keeps the score, MUTATE=1 breaks the local Vertex and counts which rows notice
	@$(VENV)/bin/python -m tools.fidelity$(if $(MUTATE),.mutation) $(foreach row,$(ROWS),--row '$(row)') $(if $(ACCEPT),--accept)

reference: $(READY) ## Generate the reference pages in docs/
	@$(VENV)/bin/python -m tools.project_file_page > docs/project-file.md.new && mv docs/project-file.md.new docs/project-file.md
	@$(VENV)/bin/python -m tools.checks_page > docs/checks.md.new && mv docs/checks.md.new docs/checks.md
	@for kind in project custom-job hp-tuning-job; do $(VENV)/bin/vertexrig keys --schema $$kind > docs/schema/$$kind.json.new && mv docs/schema/$$kind.json.new docs/schema/$$kind.json; done
	@$(VENV)/bin/python -m tools.coverage_page > docs/local-coverage.md.new && mv docs/local-coverage.md.new docs/local-coverage.md
	@$(VENV)/bin/python -m tools.fidelity_page > docs/fidelity.md.new && mv docs/fidelity.md.new docs/fidelity.md

# The site and a release are built in their own environments, so that .venv stays small.
build/venv-%/.ready: tools/%.txt setup.py constraints.txt
	@$(PYTHON) tools/venv.py $*

docs: build/venv-docs/.ready ## Build the documentation as a site into build/site/; a broken link is an error
	@build/venv-docs/bin/python -m tools.site build/site-source
	@build/venv-docs/bin/zensical build --strict --clean -f build/site-source/mkdocs.yml
	@rm -rf build/site && mv build/site-source/site build/site

wheel: $(BASE) ## Build the tool's wheel into dist/, with its manual page
	@rm -rf build/lib build/bdist.*
	@$(VENV)/bin/python -m tools.man man
	@$(VENV)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/*.whl

release: build/venv-release/.ready ## Build sdist, wheel, SBOM and hashes of the last commit into dist/, and test them
	@build/venv-release/bin/python -m tools.release

lock: ## Resolve constraints.txt again (needs uv)
	@PATH="$$PATH:$(VENV)/bin" uv pip compile --universal --python-version 3.10 --extra dev --no-header --no-annotate --quiet setup.py tools/docs.txt tools/release.txt -o constraints.new
	@(echo "# Every dependency of every extra, for Python 3.10 and newer. Made by: make lock"; cat constraints.new) > constraints.txt
	@rm constraints.new

clean: ## Remove build products and the state of rehearsals, and keep .venv
	@rm -rf build dist man .vertexrig *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
