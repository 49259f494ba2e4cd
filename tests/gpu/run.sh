#!/usr/bin/env bash
# Sets up from a folder of wheels where this Python lacks a package, then runs the GPU tests and the GPU studies.
# Usage: tests/gpu/run.sh OUT_FOLDER [WHEELS_FOLDER]     PARTS="tests resnet50 gpt2 mlp" picks; the default is all.
# Leaves OUT_FOLDER/gpu.json with all figures. Every part takes a few minutes and can be run alone.
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

for part in ${PARTS:-tests resnet50 gpt2 mlp}; do
    case $part in
    tests) python3 -m pytest -p no:cacheprovider -q tests/gpu 2>&1 | tee "$out/tests.log" || true ;;
    resnet50) python3 -m tests.gpu.study resnet50 --time "${TIME:-4m}" --expert="$by_hand" --out "$out/resnet50.json" ;;
    gpt2) python3 -m tests.gpu.study gpt2 --time "${TIME:-4m}" --expert="$by_hand" --out "$out/gpt2.json" ;;
    mlp) python3 -m tests.gpu.study mlp --time "${TIME:-3m}" --out "$out/mlp.json" ;;
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
