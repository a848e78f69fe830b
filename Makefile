# `make demo` and `make test` are all a newcomer needs. PYTHON=... picks the Python that .venv is made with.
PYTHON ?= python3
export PYTHON
RUN := .venv/bin/python
PYTEST := $(RUN) -m pytest

.PHONY: help build demo test test-full bench clean

help:
	@echo "make demo       build all, then two models answer on the emulated GPU"
	@echo "make test       build all, then the tests (minutes)"
	@echo "make test-full  also the long tests"
	@echo "make bench      speed of the emulator and of a model on it"
	@echo "make build      .venv with everything"
	@echo "make clean      remove .venv and build"

build:
	@scripts/system_packages.sh
	@$(PYTHON) scripts/build.py

demo: build
	@$(RUN) scripts/demo.py

test: build
	$(PYTEST) -m "not full"

test-full: build
	$(PYTEST)

bench: build
	@$(RUN) tests/bench/bench_emulator.py
	@$(RUN) tests/bench/bench_models.py

clean:
	rm -rf .venv build
