"""An ordinary training loop without dropout or shuffling that prints what an optimizer step saw, as JSON."""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--loss", choices=("mean", "sum"), default="mean")
parser.add_argument("--optimizer", default="AdamW")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--samples", type=int, default=192)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--leave-after", type=int, default=0, help="batches after which every epoch is left")
parser.add_argument("--clip", type=float, default=0.0)
parser.add_argument("--clip-value", type=float, default=0.0)
parser.add_argument("--clear", choices=("before", "after", "model", "by-hand"), default="before")
parser.add_argument("--schedule", choices=("none", "batch", "epoch", "plateau"), default="none")
parser.add_argument("--scaler", action="store_true")
parser.add_argument("--unscale", action="store_true")
parser.add_argument("--conv", action="store_true")
parser.add_argument("--weight", type=float, default=1.0, help="factor of the loss")
parser.add_argument("--overflow-at", type=int, default=-1, help="batch whose loss is infinite")
parser.add_argument("--poison-every", type=int, default=0, help="every so many batches no gradient is finite")
parser.add_argument("--sleep", type=float, default=0.0, help="seconds per batch")
parser.add_argument("--second-optimizer", action="store_true", help="one that is built and never steps")
args = parser.parse_args()

torch.manual_seed(0)
inputs = torch.randn(args.samples, 1, 6, 6) if args.conv else torch.randn(args.samples, 12)
targets = inputs.flatten(1)[:, :3].sin() * 2 + 1
if args.conv:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 3))
else:
    model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
criterion = torch.nn.MSELoss(reduction=args.loss)
optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=args.lr)
spare = torch.optim.SGD(model.parameters(), lr=1.0) if args.second_optimizer else None
scheduler = {
    "none": lambda: None,
    "batch": lambda: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
    "epoch": lambda: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1),
    "plateau": lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=1e9),
}[args.schedule]()
scaler = torch.amp.GradScaler("cpu", enabled=args.scaler, init_scale=1024.0)
said = {"losses": [], "norms": [], "rates": [], "grads": [], "num_updates": 0, "epoch_rates": []}


def note_update(optimizer, args, kwargs):
    """What the optimizer is given, at the moment of the update."""
    said["num_updates"] += 1
    said["rates"].append(optimizer.param_groups[0]["lr"])
    said["grads"].append(model[0].weight.grad.flatten()[:24].tolist())


optimizer.register_step_pre_hook(note_update)
number = 0
for _epoch in range(args.epochs):
    for count, (x, y) in enumerate(DataLoader(TensorDataset(inputs, targets), batch_size=64)):
        if args.leave_after and count == args.leave_after:
            break
        if args.clear == "before":
            optimizer.zero_grad()
        elif args.clear == "model":
            model.zero_grad()
        elif args.clear == "by-hand":
            for parameter in model.parameters():
                parameter.grad = None
        loss = criterion(model(x), y) * args.weight
        if number == args.overflow_at:
            loss = loss * float("inf")
        if args.poison_every and number % args.poison_every == 0:
            loss = loss + (model[0].weight.sum() * 0).sqrt()  # nothing now, 0 times infinity in backward
        scaler.scale(loss).backward()
        if args.unscale:
            scaler.unscale_(optimizer)
        if args.clip:
            said["norms"].append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)))
        if args.clip_value:
            torch.nn.utils.clip_grad_value_(model.parameters(), args.clip_value)
        scaler.step(optimizer)
        scaler.update()
        if args.schedule == "batch":
            scheduler.step()
        if args.clear == "after":
            optimizer.zero_grad()
        time.sleep(args.sleep)
        said["losses"].append(float(loss))
        number += 1
    if args.schedule == "epoch":
        scheduler.step()
    elif args.schedule == "plateau":
        scheduler.step(1.0)
    said["epoch_rates"].append(optimizer.param_groups[0]["lr"])
said["weights"] = [value for parameter in model.parameters() for value in parameter.flatten().tolist()]
said["scale"] = scaler.get_scale()
print(json.dumps(said))
