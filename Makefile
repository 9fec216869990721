# Everything runs in .venv; each target creates what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# constraints.txt pins every version, torch's to a release that is small on machines without a GPU.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help install demo browser test test-slow lint format bench docs dist hashes sbom audit clean
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tophit needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing Tophit with the demo into $(VENV) (a minute or two) ..."
	@$(PIP) -e '.[demo,map,onnx,report,serve]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the development tools into $(VENV) ..."
	@$(PIP) -e '.[demo,map,onnx,report,serve,dev]'
	@touch $@

install: $(VENV)/.installed ## Create .venv and install Tophit with the demo

demo: $(VENV)/.installed ## From icon fonts to a search page, in about four minutes (DEMO_ARGS=--no-serve ends before the page)
	@$(BIN)/tophit demo $(DEMO_ARGS)

HAS_BROWSER := [ -n "$$TOPHIT_CHROMIUM" ] || command -v chromium || command -v chromium-browser || command -v google-chrome

browser: ## Install the Chromium that the page's tests drive, if it is missing and apt-get can be used
	@{ $(HAS_BROWSER); } >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "Installing Chromium ..." && \
		{ apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }; } >/dev/null 2>&1; } || \
		{ echo "The page's tests need Chromium: install it (Debian: apt-get install chromium) or name one in TOPHIT_CHROMIUM."; exit 1; }

test: $(VENV)/.installed-dev browser ## Run the tests
	$(BIN)/python -m pytest

test-slow: $(VENV)/.installed-dev browser ## Run the slow tests, which take minutes
	$(BIN)/python -m pytest -m slow -n 0

lint: $(VENV)/.installed-dev ## Check format, lint, layers and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

format: $(VENV)/.installed-dev ## Format, and fix what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-dev ## Run the benchmarks, side by side in one run
	for file in benchmarks/[a-z]*.py; do $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

hashes: $(VENV)/.created ## Write requirements-hashed.txt: every pinned package with its SHA-256, for pip install --require-hashes
	$(BIN)/python .ci/hash_requirements.py

$(VENV)-audit/.created:
	@$(PYTHON) -m venv $(VENV)-audit
	@$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom pip-audit
	@touch $@

sbom: $(VENV)-audit/.created ## Write sbom.json: all pinned packages in CycloneDX's format (needs a network once, for its tool)
	$(VENV)-audit/bin/cyclonedx-py requirements requirements-hashed.txt --output-file sbom.json

audit: $(VENV)-audit/.created ## Ask the public databases for known weaknesses of the pinned packages (needs a network)
	$(VENV)-audit/bin/pip-audit --strict --require-hashes --disable-pip -r requirements-hashed.txt

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing what builds the documentation into $(VENV) ..."
	@$(PIP) -e '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs ## Build the documentation into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html"

dist: $(VENV)/.installed-dev ## Build the wheel and the source archive into dist/, and check them
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

clean: ## Remove .venv and what tools left behind (runs stay)
	rm -rf $(VENV) $(VENV)-audit .pytest_cache .ruff_cache
