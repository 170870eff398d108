# The verbs of this project; `make` alone lists them. Nothing is installed outside $(VENV).

VENV ?= .venv
ARGS ?=
REAL ?=
PARALLEL ?= -n 2 --dist loadfile --no-loadscope-reorder
CLANG ?= clang++
BOCHS ?=
KERNEL ?=
TEST_MODELS ?= $(HOME)/.cache/millstream-test-models

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --no-compile
# What users run is compiled beside its files: their environment may forbid Python to do that at every start.
INSTALL_COMPILED := PYTHONPYCACHEPREFIX= $(PIP) install --quiet
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc 2>/dev/null || echo 2)
# Tests start hundreds of interpreters. None should compile what another has compiled, also where the environment forbids
# to write bytecode beside the sources, or nobody may.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX ?= $(abspath build/bytecode)

# Stamps: what was done last, by age. The package is installed in editable mode, so edits of Python files take effect
# at once and only the native part, CMake or the dependencies make it stale.
VENV_READY := $(VENV)/.ready-venv
INSTALLED := $(VENV)/.ready-package
DEV_READY := $(VENV)/.ready-dev
JS_CLIENTS := tests/clients_js
JS_READY := $(JS_CLIENTS)/node_modules/.ready
AGENTS := build/agents
AGENTS_READY := $(AGENTS)/node_modules/.ready
NATIVE := pyproject.toml CMakeLists.txt $(shell find src/millstream/native/src -type f 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help install serve test thorough test-js agents soak check sanitize clang levels emulate format audit bench docs oracle test-models clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## make .venv, build and install the package

serve: $(INSTALLED) ## serve the default model on 127.0.0.1:8000 (ARGS="--port 8100 ...")
	@exec $(BIN)/millstream serve $(ARGS)

test: $(DEV_READY) test-models ## set up what the tests need and run them all (ARGS="tests/cli -k help", PARALLEL= one by one)
	@MILLSTREAM_TEST_MODELS="$(TEST_MODELS)" $(BIN)/python -m pytest $(PARALLEL) $(ARGS)

thorough: $(DEV_READY) test-models ## `make test` with long tests of every model, and properties with ten times the examples
	@MILLSTREAM_TEST_MODELS="$(TEST_MODELS)" $(BIN)/python -m pytest $(PARALLEL) --thorough $(ARGS)

test-js: $(DEV_READY) $(JS_READY) ## test the JavaScript SDKs against a live server (needs node 20 or later)
	@cd $(JS_CLIENTS) && MILLSTREAM_PYTHON="$(abspath $(BIN)/python)" node --test $(ARGS)

agents: $(DEV_READY) $(AGENTS_READY) test-models ## drive coding agents against a live server (REAL=1: and a real model)
	@MILLSTREAM_TEST_MODELS="$(TEST_MODELS)" MILLSTREAM_AGENTS_REAL="$(REAL)" $(BIN)/python -m pytest tests/agents $(ARGS)

soak: $(DEV_READY) test-models ## a storm of clients with engine kills on a real model (ARGS="--clients 64 --kills 3")
	@cd tests && MILLSTREAM_TEST_MODELS="$(TEST_MODELS)" "$(abspath $(BIN)/python)" -m soak $(ARGS)

check: $(DEV_READY) ## formatting, lint, types and the fast tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@MILLSTREAM_TEST_MODELS="$(TEST_MODELS)" $(BIN)/python -m pytest -m "not slow" $(ARGS)

sanitize: $(DEV_READY) ## test the native core under the address and undefined behaviour sanitizers (ARGS=tests/native/test_inputs.py)
	@BIN=$(BIN) sh tools/native-build.sh sanitize -DMILLSTREAM_SANITIZE=ON
	@BIN=$(BIN) sh tools/sanitized.sh $(BIN)/python -m pytest $(or $(ARGS),tests/native -k "not smollm2 and not emulated")

clang: $(DEV_READY) ## test the native core as Clang compiles it (CLANG=clang++-18, ARGS=tests/native/test_inputs.py)
	@BIN=$(BIN) sh tools/native-build.sh clang -DCMAKE_CXX_COMPILER="$(CLANG)"
	@MILLSTREAM_CORE=build/clang $(BIN)/python -m pytest -m "not slow" $(or $(ARGS),tests/native)

levels: $(DEV_READY) ## test the native core at the levels avx512 and amx, over emulated instructions (ARGS=tests/native/test_inputs.py)
	@BIN=$(BIN) sh tools/native-build.sh emulated -DMILLSTREAM_EMULATE=ON
	@for level in avx512 amx; do MILLSTREAM_CORE=build/emulated MILLSTREAM_ISA=$$level \
	  $(BIN)/python -m pytest -m "not slow" $(or $(ARGS),tests/native) || exit 1; done

emulate: $(DEV_READY) ## run AVX-512 and AMX code on an emulator (BOCHS=.../bochs KERNEL=.../vmlinuz, CXX=clang++-19)
	@test -x "$(BOCHS)" -a -r "$(KERNEL)" || { echo "make: emulate needs BOCHS=.../bochs and KERNEL=.../vmlinuz that exist: docs/performance.md" >&2; exit 2; }
	@BIN=$(BIN) sh tools/native-build.sh "emulate-$(notdir $(CXX))" -DCMAKE_CXX_COMPILER="$(CXX)"
	@$(BIN)/python tools/emulator/run.py --bochs "$(BOCHS)" --kernel "$(KERNEL)" --compiler "$(CXX)" \
	  --core "build/emulate-$(notdir $(CXX))" $(ARGS)

format: $(DEV_READY) ## format and sort the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

audit: $(INSTALLED) ## look for known vulnerabilities in the installed dependencies (needs the network)
	@sh tools/audit.sh $(VENV)

bench: $(INSTALLED) ## measure start-up, memory and speed (ARGS=...)
	@exec $(BIN)/millstream bench $(ARGS)

docs: $(VENV_READY) ## build the documentation as a site in build/site (ARGS=serve: show it on 127.0.0.1:8001)
	@test -x $(VENV)-docs/bin/python || $(BIN)/python -m venv $(VENV)-docs
	@$(VENV)-docs/bin/python -m pip install -q --upgrade "pip>=25.1"
	@$(VENV)-docs/bin/python -m pip install -q --no-compile --group docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs $(if $(filter serve,$(ARGS)),serve --dev-addr 127.0.0.1:8001,build --quiet)
	$(if $(filter serve,$(ARGS)),,@echo "make: the site is in build/site; make docs ARGS=serve shows it on 127.0.0.1:8001")

.PHONY: screenshots
screenshots: $(DEV_READY) ## take the pictures of the documentation anew (needs a Chromium): look at them
	@$(BIN)/python tools/top_screenshots.py
	@$(BIN)/python tools/web_screenshots.py

oracle: $(VENV_READY) ## write the golden files anew with Transformers (heavy: torch, in its own environment)
	@test -x $(VENV)-oracle/bin/python || $(BIN)/python -m venv $(VENV)-oracle
	@$(VENV)-oracle/bin/python -m pip install -q -r tools/oracle-requirements.txt
	@if [ -n "$(ARGS)" ]; then $(VENV)-oracle/bin/python tools/oracle.py $(ARGS); \
	  else for part in tiny greedy text; do $(VENV)-oracle/bin/python tools/oracle.py $$part || exit 1; done; fi

test-models: $(INSTALLED)
	@$(BIN)/millstream pull --quiet --to "$(TEST_MODELS)" --all \
	  || echo "make: a test model could not be fetched; the tests that need it are skipped" >&2

clean: ## remove the environment and everything built
	rm -rf $(VENV) $(VENV)-oracle $(VENV)-docs $(VENV)-audit $(JS_CLIENTS)/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV_READY):
	@python=$$(sh tools/find-python.sh $(BIN)/python) && \
	  if [ "$$python" != "$(BIN)/python" ]; then echo "make: creating $(VENV) with $$python"; "$$python" -m venv --clear $(VENV); fi
	@touch $@

$(INSTALLED): $(VENV_READY) $(NATIVE)
	@echo "make: building and installing millstream (the native core takes a minute)"
	@$(INSTALL) $$($(BIN)/python tools/build-requires.py)
	@$(INSTALL) $$($(BIN)/python tools/build-requires.py --tools)
	@$(INSTALL_COMPILED) --no-build-isolation --editable .
	@touch $@

$(DEV_READY): $(INSTALLED) pyproject.toml
	@echo "make: installing what the tests need"
	@$(INSTALL) --upgrade "pip>=25.1"
	@$(INSTALL) --group dev
	@touch $@

$(JS_READY): $(JS_CLIENTS)/package.json $(JS_CLIENTS)/package-lock.json
	@echo "make: installing the JavaScript clients"
	@cd $(JS_CLIENTS) && npm ci --loglevel=error
	@touch $@

# Not `npm ci`: it wants every platform's optional package in the lock file, and registries do not have all of them.
$(AGENTS_READY): tests/agents/package.json tests/agents/package-lock.json
	@echo "make: installing the coding agents (1.3 GB)"
	@mkdir -p $(AGENTS) && cp $^ tests/agents/.npmrc $(AGENTS)/
	@cd $(AGENTS) && npm install --no-save --loglevel=error
	@touch $@
