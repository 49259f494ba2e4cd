"""Lightning's Trainer, with validation, a logger, a scheduler per epoch and checkpoints."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """A small network as Lightning wants it."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("right", (self.layers(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters())
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 100)]


def main():
    """Trains and validates."""
    torch.manual_seed(0)
    rows = torch.randn(136, 4)
    data = TensorDataset(rows, rows.argmax(1) % 3)
    training, validation = torch.utils.data.random_split(data, [96, 40])
    trainer = lightning.Trainer(max_epochs=100000, accelerator="cpu", gradient_clip_val=0.5, log_every_n_steps=4)
    trainer.fit(Classifier(), DataLoader(training, batch_size=8, shuffle=True), DataLoader(validation, batch_size=8))
    print("THE END")


if __name__ == "__main__":
    main()
