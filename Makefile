# make start    the app (ARGS=... are passed on to app.py)
# make test     every test that can run here (ARGS=... are passed on to pytest)
# make check    formatting, lint, types and the import contract
# make format   rewrite the files the way `make check` wants them
# make constraints   write the newest versions that requirements.txt allows into constraints.txt: test them, then commit
# make clean    remove what this file created: .venv and the tool caches
#
# Plain PyPI torch is a CUDA build of several GB on Linux. For the CPU build:
#   TORCH_INDEX=https://download.pytorch.org/whl/cpu make start

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP_OPTIONS = --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
PIP_INSTALL = $(PYTHON) -m pip install $(PIP_OPTIONS) --constraint constraints.txt

.PHONY: start test check format constraints clean FORCE

start: $(VENV)/.runtime-installed
	$(PYTHON) app.py $(ARGS)

test: $(VENV)/.dev-installed
	$(PYTHON) tests/run_all.py $(ARGS)

check: $(VENV)/.dev-installed
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m ruff check
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-logo

format: $(VENV)/.dev-installed
	$(PYTHON) -m ruff format
	$(PYTHON) -m ruff check --fix

# In an environment of its own. Torch's builds differ in their local version and in what they bring along.
constraints: $(VENV)/.created
	rm -rf $(VENV)-newest
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install $(PIP_OPTIONS) -r requirements-dev.txt
	{ sed -n '/^#/p' constraints.txt; $(VENV)-newest/bin/python -m pip freeze \
	    | grep --extended-regexp --invert-match '^(triton|nvidia-|cuda-)' | sed 's/+[a-z0-9.]*$$//'; } > constraints.new
	mv constraints.new constraints.txt
	rm -rf $(VENV)-newest

clean:
	rm -rf $(VENV) $(VENV)-newest .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written only after its step succeeded, so an interrupted one is taken up by the next call.
$(VENV)/.runtime-installed: requirements.txt constraints.txt $(VENV)/.created
	$(PIP_INSTALL) -r requirements.txt
	@touch $@

$(VENV)/.dev-installed: requirements-dev.txt $(VENV)/.runtime-installed
	$(PIP_INSTALL) -r requirements-dev.txt
	@touch $@

# An environment whose Python does not start is made anew: its creation was interrupted, or the Python it
# was made from is gone.
VENV_WORKS := $(shell $(PYTHON) -c 'import pip' 2>/dev/null && echo yes)

$(VENV)/.created: $(if $(VENV_WORKS),,FORCE)
	@if [ "$(VENV_WORKS)" = yes ]; then touch $@; exit; fi; \
	for candidate in python3.13 python3.12 python3.11 python3; do \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        found=$$candidate; \
	        if $$candidate -c 'import ensurepip, venv' 2>/dev/null; then \
	            echo "Creating $(VENV) with $$candidate."; \
	            $$candidate -m venv --clear $(VENV) && touch $@; \
	            exit; \
	        fi; \
	    fi; \
	done; \
	if [ -n "$$found" ]; then \
	    echo "$$found cannot create a virtual environment. On Debian or Ubuntu: apt install $$found-venv" >&2; \
	else \
	    echo "Encore needs Python 3.11 or newer. On Debian or Ubuntu: apt install python3 python3-venv" >&2; \
	fi; \
	exit 1
