#!/usr/bin/env bash
# Sets up from a folder of wheels where this Python lacks a package, then runs the GPU tests and the GPU studies.
# Usage: tests/gpu/run.sh OUT_FOLDER [WHEELS_FOLDER]     PARTS="tests resnet50" picks of those below; the default is all.
# A study's own cap is as if the card were smaller; -whole lifts it, -free lets the search choose the effective batch, too.
# TIME is each search's, SECONDS_EACH that of every run that it is compared by, LIMIT_S that of a study's part of a call.
# Leaves OUT_FOLDER/gpu.json with all figures. Every part can be run alone, and a study goes on where it stopped.
set -euo pipefail
out=$(realpath -m "$1")
wheels=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$out"
if [[ -n $wheels ]]; then
    site=$(mktemp -d)
    python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$wheels"/*.whl
    export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
cores=$(nproc)
by_hand="--workers $cores --pin-memory --persistent-workers --bf16"

# What stopped at LIMIT_S goes on with the next call that names the same OUT_FOLDER.
study() {
    python3 -m tests.gpu.study "${1%%-*}" --time "${TIME:-$2}" --seconds "${SECONDS_EACH:-15}" --limit-s "${LIMIT_S:-inf}" \
        --work "$out/$1" --out "$out/$1.json" --expert="$by_hand" --bf16=--bf16 "${@:3}" || [[ $? == 3 ]]
}

# What every search would have made of the grids that were recorded on this kind of device; nothing is measured.
table() {
    mkdir -p "$out/grids"
    cp tests/data/grids/*-h200.jsonl "$out/grids"
    python3 -m tests.benchmarks.search --workloads 0 --grids "$out/grids" --without gp \
        --keep "$out/table.jsonl" --dry > "$out/table.md"
}

for part in ${PARTS:-tests resnet50 resnet50-whole gpt2 gpt2-whole mlp mlp-whole mlp-free table}; do
    case $part in
    tests) python3 -m pytest -p no:cacheprovider -q tests/gpu 2>&1 | tee "$out/tests.log" || true ;;
    resnet50 | gpt2) study "$part" 4m ;;
    mlp) study mlp 3m --memory-cap 24GiB ;;
    *-whole) study "$part" 4m --memory-cap 90% ;;
    mlp-free) study mlp-free 3m --search "--effective-batch 32..1024" ;;
    table) table ;;
    *) echo "There is no part $part." >&2 && exit 2 ;;
    esac
done
python3 - "$out" <<'PY'
import json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
figures = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json")) if path.stem != "gpu"}
log = folder / "tests.log"
table = folder / "table.md"
if table.exists():
    figures["table"] = table.read_text().splitlines()
if log.exists():
    figures["tests"] = log.read_text().splitlines()[-60:]
(folder / "gpu.json").write_text(json.dumps(figures, indent=1))
PY
