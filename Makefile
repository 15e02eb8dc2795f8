# Targets only forward: tox.ini is the truth. PYTHON picks the interpreter (3.11 or later), VENV where its environment is.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
# An environment is of one version; asking for another one makes it anew.
MADE := $(VENV)/made-by-python-$(VERSION)

.PHONY: up check test coverage fmt proto bench clean

up: $(VENV)/up            ## run IOP on embedded defaults: edge, node and what this machine serves
	$(VENV)/bin/iop up $(ARGS)

check: $(VENV)/tox        ## everything CI runs: tests, lint, types, import contracts, wire module
	$(VENV)/bin/tox run $(ARGS)

test: $(VENV)/tox         ## the tests alone
	$(VENV)/bin/tox run -e py $(ARGS)

coverage: $(VENV)/tox     ## the tests, and how much of the program they run
	$(VENV)/bin/tox run -e coverage $(ARGS)

fmt: $(VENV)/tox
	$(VENV)/bin/tox run -e fmt

proto: $(VENV)/tox        ## regenerate iop/wire/runtime_pb2.py from proto/iop/runtime.proto
	$(VENV)/bin/tox run -e proto -- --write

bench: $(VENV)/up         ## figures of the streaming path; see bench/README.md
	$(VENV)/bin/python bench/gateway.py $(ARGS)

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: IOP needs Python 3.11 or later; $(PYTHON) is $(or $(VERSION),no Python)." \
	       "Name one that is: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.12" >&2; exit 1; }
	@test ! -e $(VENV) -o -e $(VENV)/pyvenv.cfg || { \
	  echo "error: $(VENV) is there already and no virtual environment; choose another VENV" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/up: $(MADE) setup.cfg pyproject.toml
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/tox: $(MADE)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'tox>=4.20'
	@touch $@

clean:
	@test ! -e $(VENV) -o -e $(VENV)/pyvenv.cfg || { echo "error: $(VENV) is no virtual environment" >&2; exit 1; }
	rm -rf $(VENV) .tox build dist *.egg-info
