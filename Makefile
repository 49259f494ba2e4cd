# Every target does its own set-up. Needed beforehand: make and Python 3.11 or newer with its venv module.
# Times are those of two cores.

PYTHON ?= python3
# More options for pip, such as the index of a smaller build of torch.
PIP_FLAGS ?=

BIN := .venv/bin
STAMP := .venv/installed
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) --constraint constraints.txt
FAST := "not slow and not gpu"
SLOW := "slow and not gpu"
# In the order of folders: the long tests of integration and service come before unit tests.
TOGETHER := --dist loadscope --no-loadscope-reorder

.PHONY: setup search serve session service-api service-pictures newcomer test test-all test-keras matrix lint bench-measure
.PHONY: bench-search bench-startup
.PHONY: bench-diagnose bench-storage bench-parity bench-rival bench-scale bench-service options clean

## setup: .venv with all that the package, its tests and studies/ need. 2 to 5 minutes, most of it torch's download.
setup: $(STAMP)

# The stamp comes last: an interrupted set-up is taken up again. Torch goes first, so that a network that fails does so
# on the one large file, and nothing else decides which torch it is.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) torch
	$(PIP_INSTALL) --editable '.[dev,studies]'
	touch $@

## search: the main job on studies/jpeg_cnn. Under 8 minutes; a new study each time.
search: setup
	cd studies/jpeg_cnn && ../../$(BIN)/autotune search train.py --study jpeg_cnn-$$(date +%Y%m%d-%H%M%S)

## serve: the service on studies/jpeg_cnn, with one worker on this machine; prints the URL for a browser.
serve: setup
	$(BIN)/autotune serve --project studies/jpeg_cnn $(SERVE)

## service-pictures: the pictures of docs/service.md, from a real search in a real Chromium. Under 15 minutes.
service-pictures: setup
	$(PIP_INSTALL) --quiet --editable '.[browser]'
	$(BIN)/python -m tests.docs.service_pictures $(PICTURES)

## session: the README's sample, from a real search on a pseudo-terminal. 6 minutes; SESSION="--time 8m" gives it longer.
session: setup
	$(BIN)/python -m tests.docs.record_session $(SESSION)

## options: docs/options.md from the table of options. Seconds.
options: setup
	$(BIN)/python -m tests.docs.options_page

## service-api: docs/service-api.md from the description of the API. Seconds.
service-api: setup
	$(BIN)/python -m tests.docs.service_api_page

## newcomer: every command of the README in a fresh clone, into docs/newcomer.md. 25 minutes; NEWCOMER="--time 5m" gives
## each search longer.
newcomer:
	$(PYTHON) -m tests.docs.newcomer $(NEWCOMER)

## lint: ruff, its formatter, mypy, and plain English in docstrings and comments. Under a minute.
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.style.prose autotune --limit 0.05 --worst 5

## test: lint and the fast tests; what CI runs. 15 minutes. Four processes, since many tests wait; no fast test depends
## on the speed of the machine.
test: lint
	$(BIN)/pytest -m $(FAST) -n 4 $(TOGETHER) --durations 12

## test-all: lint and every tier; with an NVIDIA driver the GPU tests too. It installs the frameworks that tuned configs
## are exported to, and DALI, which only slow tests use: 1.1 GB of disk. Slow tests search for minutes each: two at a time.
test-all: lint $(STAMP).frameworks
	$(BIN)/pytest -m $(FAST) -n 4 $(TOGETHER) --durations 12
	$(BIN)/pytest -m $(SLOW) -n 2 $(TOGETHER) --durations 12
	$(if $(shell command -v nvidia-smi),$(BIN)/pytest -m gpu)

## test-keras: Keras scripts on TensorFlow, JAX and torch, in .venv-keras: TensorFlow needs an older h5py than our storage
## is tested with. 2 GB of disk; five minutes once all is installed.
test-keras: .venv-keras/installed
	.venv-keras/bin/python -m pytest tests/integration/keras

.venv-keras/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-keras
	grep -v '^h5py' constraints.txt > .venv-keras/constraints.txt
	.venv-keras/bin/python -m pip install --disable-pip-version-check $(PIP_FLAGS) --constraint .venv-keras/constraints.txt \
		--editable '.[keras]' pytest
	touch $@

# DeepSpeed is there for its own check of a config: nothing of it that needs a compiler is built.
$(STAMP).frameworks: $(STAMP)
	DS_BUILD_OPS=0 $(PIP_INSTALL) --editable '.[dev,studies,frameworks,dashboard,report,browser,ray]'
	touch $@

## matrix: unit and integration tests under Python 3.11 to 3.13 and the oldest and newest torch that can be installed. Half
## an hour for each of them, and 6 GB of disk at a time; MATRIX="--only 3.11-oldest --tests tests/unit" runs a part.
matrix: setup
	$(BIN)/python -m tests.matrix $(MATRIX)

## bench-measure: whether the measurement can be trusted; over an hour on a quiet machine. It goes on where it stopped;
## MEASURE="2x2 --limit-s 520" measures one part, --help names them all.
bench-measure: setup
	$(BIN)/python -m tests.benchmarks.measure $(MEASURE)

## bench-search: our search against Optuna's samplers, on simulated jobs and recorded grids; writes
## tests/benchmarks/search/RESULTS.md. An hour, most of it the GP's; SEARCH="--keep runs.jsonl" goes on where it stopped.
bench-search: setup
	$(PIP_INSTALL) --quiet --editable '.[bench]'
	$(BIN)/python -m tests.benchmarks.search $(SEARCH)

## bench-startup: what a trial costs beside its measurement, forked, prepared and cold; writes
## tests/benchmarks/startup/RESULTS.md. 20 minutes, a quarter of them a search; STARTUP="first --pairs 6" measures one part.
bench-startup: setup
	$(BIN)/python -m tests.benchmarks.startup $(STARTUP)

## bench-diagnose: whether `autotune diagnose` is right on five scripts of known sickness, and keeps its promises; writes
## tests/benchmarks/diagnose/RESULTS.md. 5 minutes on a quiet machine.
bench-diagnose: setup
	$(BIN)/python -m tests.benchmarks.diagnose $(DIAGNOSE)

## bench-storage: whether advice on stored samples is right on eight scripts of known sickness, and keeps its promises;
## writes tests/benchmarks/storage/RESULTS.md. 15 minutes on a quiet machine; needs opencv-python-headless.
bench-storage: setup
	$(BIN)/python -m tests.benchmarks.storage $(STORAGE)

## bench-service: the service under 200 workers, 1,000 jobs and 50 watchers; prints JSON for
## tests/benchmarks/service/RESULTS.md. A minute; SERVICE="--seconds 1800" measures half an hour.
bench-service: setup
	$(BIN)/python -m tests.benchmarks.service $(SERVICE)

## bench-parity: losses of 50 steps under every setting of three studies, against those of the script's own; half an
## hour on two cores. PARITY="--device cuda --compile" trains on a GPU, with compiled models too: minutes on 16 cores.
bench-parity: setup
	$(BIN)/python -m tests.benchmarks.parity $(PARITY)

## bench-rival: searches of autotune and of pytorch-autotune on three models, and the rates reached by both; needs a GPU
## and pytorch-autotune. 20 minutes; RIVAL="--models resnet18" compares one.
bench-rival: setup
	$(BIN)/python -m tests.benchmarks.rival $(RIVAL)

## bench-scale: how long the verbs that read take on a study of 10,000 made-up trials, and one proposal of its search.
## 2 minutes on a quiet machine; SCALE="--database scale.db" keeps the database.
bench-scale: setup
	$(BIN)/python -m tests.benchmarks.scale $(SCALE)

## clean: what can be made again; study databases and tuned configs stay. Seconds.
clean:
	rm -rf .venv .matrix .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	rm -rf studies/*/data studies/*/data.*
	find autotune tests studies -type d -name __pycache__ -prune -exec rm -rf {} +
