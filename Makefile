# Needs make and Python 3.11 or newer; everything else goes into .venv, from requirements.lock, or
# for `make integrations` into .venv-integrations, from requirements-integrations.lock.
# The first `make` fetches it, later ones need no network until the lock file changes.

VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
UV_VERSION := 0.13.8
READY := $(VENV)/.ready
EXTRAS := .venv-integrations
EXTRAS_LOCK := requirements-integrations.lock
LOCK_OPTIONS := --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header
CANDIDATES = $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11)
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo dev chaos test pictures check house format generate dashboards \
  deploy-render deploy-check verify lock audit image coverage workers integrations cluster ci \
  clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with everything that is needed

demo: $(READY) ## Show a flood that does not hurt the others (ARGS="--seconds 20")
	@$(PY) -m pop_stream demo $(ARGS)

dev: $(READY) ## Run everything on this machine, until Ctrl-C (ARGS="--port 8081")
	@$(PY) -m pop_stream dev $(ARGS)

chaos: $(READY) ## Kill and freeze parts under load, then audit (ARGS="--seed 7 --kills 20")
	@$(PY) -m pop_stream chaos --kills 8 --freezes 2 --seconds 40 --rate 20 $(ARGS)

# In the order of folders: files that wait for servers come first, and short ones fill the end.
# The console's need Chromium and the rules' Prometheus, which come by apt where they are missing.
test: check ## Check, then run all tests against a real Kafka and Postgres (ARGS="-k name")
	@set -eu; left_out="$$($(PY) tests/support/browser.py)"; \
	left_out="$$left_out $$(PYTHONPATH=. $(PY) tests/support/prometheus_server.py)"; set -x; \
	$(PY) -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $$left_out $(ARGS); \
	{ set +x; } 2>/dev/null; [ -z "$${left_out# }" ] || echo "*** LEFT OUT: $$left_out ***" >&2

pictures: $(READY) ## Take the console's pictures for the documentation (ARGS=folder-for-all)
	@$(PY) tests/support/browser.py >/dev/null
	@PYTHONPATH=tests/support $(PY) tests/support/console_pictures.py $(ARGS)

check: $(READY) ## Format, lint, types, imports, and whether generated files are current
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) -m pop_stream.cli.generate --check

house: $(READY) ## Print lines by room and what the layout's rules find
	@$(PY) tests/support/house.py

format: $(READY) ## Format the code and repair what can be repaired
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

generate: $(READY) ## Write the schemas and reference pages that are made from the code
	$(PY) -m pop_stream.cli.generate

dashboards: $(READY) ## Write Grafana's dashboards from deploy/grafana/dashboards.py
	$(PY) deploy/grafana/dashboards.py

deploy-render: $(READY) ## Render the overlays and the chart into deploy/rendered (needs helm and kustomize)
	$(PY) deploy/render.py

# Beyond what is locked: Kubernetes' own schemas, fetched when they are first needed.
deploy-check: $(READY) ## Render anew, compare, and check by Helm and Kubernetes' schemas
	$(PY) deploy/render.py --check
	helm lint --strict --kube-version 1.31 deploy/helm/pop-stream
	$(PY) -m pytest -q deploy/checks
	$(UV) tool run --quiet --from kubernetes-validate==1.37.0 \
	  kubernetes-validate --strict --quiet -k 1.31 deploy/rendered/*.yaml

verify: $(READY) ## Check that they are current
	$(PY) -m pop_stream.cli.generate --check

lock: $(READY) ## Write both lock files anew from pyproject.toml
	$(UV) pip compile $(LOCK_OPTIONS) --extra embedded --extra otel --extra share --group dev \
	  pyproject.toml -o requirements.lock
	$(UV) pip compile $(LOCK_OPTIONS) --all-extras --group dev --group integrations \
	  -c requirements.lock pyproject.toml -o $(EXTRAS_LOCK)

audit: $(READY) ## Look for known vulnerabilities of what is locked (ARGS=--strict)
	@$(PY) tests/support/audit.py $(ARGS)

image: ## Build the image on the digest that its base image has now
	@set -eu; name=$$(sed -n 's/^ARG PYTHON_IMAGE=//p' Dockerfile); \
	digest=$$(docker buildx imagetools inspect "$$name" --format '{{.Manifest.Digest}}') \
	  || { echo "The digest of $$name cannot be looked up; see above." >&2; exit 1; }; \
	echo "Building on $$name@$$digest"; \
	docker build --build-arg "PYTHON_IMAGE=$$name@$$digest" \
	  --tag "pop-stream:$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" .

coverage: $(READY) ## Check that the tests of the core reach every branch of it
	$(VENV)/bin/coverage run -m pytest tests/unit tests/properties tests/lab/unit tests/lab/properties
	$(VENV)/bin/coverage report

workers: ## Write what is generated for the workers in Go and TypeScript (needs go and npm)
	cd workers/go && go generate ./...
	cd workers/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run generate

# The engine of containers is Podman's; the workers in other languages need go and node.
integrations: $(EXTRAS)/.ready ## Test what needs the extras for frameworks and platforms (ARGS="-k name")
	@set -eu; left_out="$$(PYTHONPATH=tests/support $(PY) tests/support/podman_engine.py)"; \
	left_out="$$left_out $$($(PY) tests/support/worker_programs.py)"; set -x; \
	$(EXTRAS)/bin/python -m pytest --numprocesses 2 --dist loadfile tests/integrations $$left_out $(ARGS)

# Kubernetes is built from its Go module when it is first needed: 10 to 30 minutes, once a user.
cluster: $(READY) ## Test Jobs and deploy/rendered on a real API server (needs go, and etcd or apt)
	@PYTHONPATH=. $(PY) tests/support/kubernetes_server.py
	$(PY) -m pytest tests/cluster $(ARGS)

ci: coverage test integrations audit ## All of the above that can fail

clean: ## Remove environments and caches; the data of dev and demo stay
	rm -rf $(VENV) $(EXTRAS) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*

# A path file instead of an editable install: that would fetch a build backend. The stamp is
# written last, so an interrupted set-up is simply done again.
$(READY): requirements.lock pyproject.toml Makefile
	@set -eu; rm -f $(READY); chosen=; \
	for candidate in $(CANDIDATES); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then chosen="$$candidate"; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	  echo "pop_stream needs Python 3.11 or newer; none of these is one: $(CANDIDATES)." >&2; \
	  echo "Install one, or name one: make PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	if ! "$$chosen" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$chosen cannot make virtual environments: its ensurepip or venv is missing." >&2; \
	  echo "On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; \
	fi; \
	version='import sys; print(sys.version_info[:2])'; \
	if [ "$$($(PY) -c "$$version" 2>/dev/null)" != "$$("$$chosen" -c "$$version")" ] \
	  || ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  echo "Making $(VENV) with $$("$$chosen" --version)"; \
	  "$$chosen" -m venv --clear $(VENV); \
	fi; \
	case "$$($(UV) --version 2>/dev/null)" in "uv $(UV_VERSION)"*) ;; *) \
	  $(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION);; esac; \
	echo "Installing what requirements.lock names"; \
	VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(UV) pip sync --quiet --require-hashes requirements.lock; \
	site="$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; \
	printf '%s\n' "$(CURDIR)" > "$$site/pop_stream.pth"; \
	printf '#!/bin/sh\nexec "%s/$(PY)" -m pop_stream "$$@"\n' "$(CURDIR)" \
	  > $(VENV)/bin/pop-stream; \
	chmod +x $(VENV)/bin/pop-stream; \
	touch $(READY)

$(EXTRAS)/.ready: $(EXTRAS_LOCK) $(READY)
	@set -eu; rm -f $@; \
	$(UV) venv --quiet --allow-existing --python $(PY) $(EXTRAS); \
	echo "Installing what $(EXTRAS_LOCK) names"; \
	VIRTUAL_ENV="$(CURDIR)/$(EXTRAS)" $(UV) pip sync --quiet --require-hashes $(EXTRAS_LOCK); \
	site="$$($(EXTRAS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; \
	printf '%s\n' "$(CURDIR)" > "$$site/pop_stream.pth"; \
	printf '#!/bin/sh\nexec "%s/$(EXTRAS)/bin/python" -m pop_stream "$$@"\n' "$(CURDIR)" \
	  > $(EXTRAS)/bin/pop-stream; \
	chmod +x $(EXTRAS)/bin/pop-stream; \
	touch $@
