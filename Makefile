# One command on a bare machine with Python 3.11: `make demo` or `make test`.
# The environment is made on first use, and gets more when more is asked for (.ci/environment.py). VENV=path names another.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
PANDAS3 = $(VENV)-pandas3
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE :=  # where it is set, every process and every worker of the tests compiles everything anew

# where cells are read from frames and files, and written again
FRAME_TESTS := tests/data tests/answers/test_completing.py tests/test_one_table.py tests/test_forms_come_back.py \
  tests/test_synthesizer.py tests/test_misread.py tests/test_header.py tests/test_held_out.py tests/adversary/test_source_shapes.py

.PHONY: for-demo for-tests for-docs for-pandas3 help demo docs test test-long test-benchmarks test-pandas3 test-all lint types check soak attack audit bench guard reference tables papers paper plot picture diagrams wheel-check format clean
help:           ## this text
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

for-demo for-tests for-docs for-pandas3:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; found $$($(PYTHON) --version). Set PYTHON=…"; exit 1; }
	@$(PYTHON) .ci/environment.py $(if $(filter for-pandas3,$@),$(PANDAS3),$(VENV)) $(@:for-%=%)

demo: for-demo  ## two holders publish one joint synthetic table, from real data
	@$(BIN)/understudy demo $(if $(OUT),--out $(OUT))

test: for-tests  ## the tests but long ones and those of benchmarks, on two cores; four workers, as some tests wait
	@OMP_NUM_THREADS=1 $(BIN)/pytest --workers 4 -m "not benchmark and not long"

test-long: for-tests  ## the tests of many draws, fits or processes
	@OMP_NUM_THREADS=1 $(BIN)/pytest --workers 4 -m "long and not benchmark"

test-benchmarks: for-tests  ## the tests of benchmarks: each in a small version, and its --help
	@OMP_NUM_THREADS=1 $(BIN)/pytest --workers 4 -m benchmark

test-pandas3: for-pandas3  ## the tests of frames with pandas 3, in an environment of its own beside VENV
	@$(PANDAS3)/bin/python -c 'import pandas, sys; sys.exit(pandas.__version__ < "3" and f"{sys.prefix} has pandas {pandas.__version__}")'
	@OMP_NUM_THREADS=1 $(PANDAS3)/bin/pytest --workers 4 $(FRAME_TESTS)

test-all: test test-long test-benchmarks  ## every test

lint: for-tests  ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: for-tests ## mypy, strict
	@$(BIN)/mypy

check: lint types test-all ## all of the above

soak: for-tests  ## kill server and parties at random, KILLS=100 times, and compare with an undisturbed run
	@OMP_NUM_THREADS=1 $(BIN)/python tests/runtime/soak.py --kills $(or $(KILLS),100) $(if $(SEED),--seed $(SEED))

attack: for-tests ## an enemy draws settings and asks at random for S=600 seconds, and says what it tried and found
	@OMP_NUM_THREADS=1 $(BIN)/python tests/adversary/campaign.py --seconds $(or $(S),600) $(if $(SEED),--seed $(SEED))

audit: for-tests ## finer bugs than the tests plant, under new seeds, for some minutes: ONLY=word in a name, SEED=
	@OMP_NUM_THREADS=1 $(BIN)/python tests/evaluate/long_audit.py $(if $(ONLY),--only "$(ONLY)") $(if $(SEED),--seed $(SEED))

bench: for-tests ## make bench NAME=critic [DATA=folder] [QUICK=1]
	@test -n "$(NAME)" || { echo "Which one? NAME= one of: $$(ls benchmarks/*/bench.py | xargs -n 1 dirname | xargs -n 1 basename | tr '\n' ' ')"; exit 2; }
	@DATA="$(or $(DATA),data)" QUICK="$(QUICK)" $(BIN)/python benchmarks/$(NAME)/bench.py

guard: for-tests ## what got slower than benchmarks/guard/guard.csv says, in three minutes; WRITE=1 writes it anew
	@$(BIN)/python benchmarks/guard/bench.py $(if $(WRITE),--write)

reference: for-tests ## write docs/settings.md from the protocols' own settings
	@$(BIN)/python docs/reference.py

tables: for-tests ## make tables [NAME=critic]: the READMEs' tables, from the CSV files beside them
	@$(BIN)/python benchmarks/common/readme.py $(NAME)

papers: for-tests ## write docs/papers.md: the papers' tables and figures, with ours beside them
	@$(BIN)/python docs/papers.py

paper: for-tests ## make paper NAME=002-table-5: one table or figure of a paper, from its CSV file, drawn into build/papers
	@$(BIN)/python docs/papers.py $(or $(NAME),none)

plot: for-tests ## the README's plot, docs/quality.svg, and that of benchmarks/rivals, from their CSV files
	@$(BIN)/python benchmarks/joint/plot.py && $(BIN)/python benchmarks/rivals/plot.py

picture: for-tests ## the README's picture of a report, docs/report.png, from a run of the demo; needs Chromium
	@$(BIN)/python docs/picture.py

diagrams: for-tests ## the pictures of docs/design.md
	@$(BIN)/python docs/diagrams.py

docs: for-docs  ## the documentation as a site, build/site/index.html
	@$(BIN)/python docs/stage.py && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

wheel-check: for-tests ## build the wheel, install it outside of the checkout and run the demo there
	@$(BIN)/python tests/wheel_check.py

format: for-tests ## let ruff lay out the code
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean:          ## remove the environment, if Make made it, and caches
	@$(PYTHON) .ci/environment.py $(VENV) remove
	@$(PYTHON) .ci/environment.py $(PANDAS3) remove
	rm -rf .pytest_cache .mypy_cache .ruff_cache build *.egg-info src/*.egg-info
