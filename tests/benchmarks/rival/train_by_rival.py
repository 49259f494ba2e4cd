"""The same training with pytorch-autotune: its search at the first run, its stored choice at every later run.

Calls only what its documentation shows: `autotune(model, batch)`, and `result.step` for every batch of the loader.
"""

import argparse
import json
import time

import torch
from pytorch_autotune import autotune
from train import make, parse_args, train


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=120, help="seconds of the search")
    parser.add_argument("--report", default="", help="file for the trials of the search")
    args = parse_args(parser)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, loader = make(args)
    batch = next(iter(loader))
    began = time.monotonic()
    options = {"compile_modes": ()} if args.tiny else {}
    result = autotune(model, tuple(batch), optimizer="adamw", lr=1e-3, budget=args.budget, device=device, **options)
    if args.report:
        with open(args.report, "w") as file:
            json.dump({"search_s": time.monotonic() - began, **result.report.to_dict()}, file)
    else:
        train(args, loader, device, result.step)


if __name__ == "__main__":
    main()
