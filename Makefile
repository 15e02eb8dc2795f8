# Targets only forward: tox.ini is the truth. PYTHON picks the interpreter (3.11 to 3.13).
PYTHON ?= python3
VENV := .venv
ARGS ?=

.PHONY: up check test fmt proto bench clean

up: $(VENV)/up            ## run IOP on embedded defaults: edge, node and what this machine serves
	$(VENV)/bin/iop up $(ARGS)

check: $(VENV)/tox        ## everything CI runs: tests, lint, types, import contracts, wire module
	$(VENV)/bin/tox run $(ARGS)

test: $(VENV)/tox         ## the tests alone
	$(VENV)/bin/tox run -e py $(ARGS)

fmt: $(VENV)/tox
	$(VENV)/bin/tox run -e fmt

proto: $(VENV)/tox        ## regenerate iop/wire/runtime_pb2.py from proto/iop/runtime.proto
	$(VENV)/bin/tox run -e proto -- --write

bench: $(VENV)/up         ## figures of the streaming path; see bench/README.md
	$(VENV)/bin/python bench/gateway.py $(ARGS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/up: $(VENV)/bin/python setup.cfg pyproject.toml
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/tox: $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'tox>=4.20'
	@touch $@

clean:
	rm -rf $(VENV) .tox build dist *.egg-info
