"""A loop around Accelerate: prepared model, optimizer, loader and schedule; backward and clipping are its own."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main():
    """Trains."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    rows = torch.randn(96, 4)
    loader = DataLoader(TensorDataset(rows, rows.argmax(1) % 3), batch_size=8, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for _ in range(100000):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    accelerator.print("THE END")


if __name__ == "__main__":
    main()
