#!/usr/bin/env bash
# Sets up from a folder of wheels where this Python lacks a package, then runs the GPU tests and the GPU studies.
# Usage: tests/gpu/run.sh OUT_FOLDER [WHEELS_FOLDER]     PARTS="tests resnet50 gpt2 mlp" picks; the default is all.
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
    python3 -m tests.gpu.study "$1" --time "${TIME:-$2}" --seconds "${SECONDS_EACH:-15}" --limit-s "${LIMIT_S:-inf}" \
        --work "$out/$1" --out "$out/$1.json" "${@:3}" || [[ $? == 3 ]]
}

for part in ${PARTS:-tests resnet50 gpt2 mlp}; do
    case $part in
    tests) python3 -m pytest -p no:cacheprovider -q tests/gpu 2>&1 | tee "$out/tests.log" || true ;;
    resnet50) study resnet50 4m --expert="$by_hand" ;;
    gpt2) study gpt2 4m --expert="$by_hand" ;;
    mlp) study mlp 3m ;;
    *) echo "There is no part $part." >&2 && exit 2 ;;
    esac
done
python3 - "$out" <<'PY'
import json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
figures = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json")) if path.stem != "gpu"}
log = folder / "tests.log"
if log.exists():
    figures["tests"] = log.read_text().splitlines()[-60:]
(folder / "gpu.json").write_text(json.dumps(figures, indent=1))
PY
