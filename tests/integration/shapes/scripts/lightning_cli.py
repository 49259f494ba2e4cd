"""LightningCLI, which builds module, data module and trainer from arguments and calls the loaders' hooks itself."""

import lightning
import torch
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """A small network."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 3))

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layers(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        self.log("right", (self.layers(x).argmax(1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Rows(lightning.LightningDataModule):
    """Made-up rows."""

    def __init__(self, batch_size: int = 8):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        rows = torch.randn(136, 4, generator=torch.Generator().manual_seed(0))
        data = TensorDataset(rows, rows.argmax(1) % 3)
        self.training, self.validation = torch.utils.data.random_split(data, [96, 40])

    def train_dataloader(self):
        return DataLoader(self.training, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.validation, batch_size=self.batch_size)


def main():
    """Trains and validates."""
    defaults = {"max_epochs": 100000, "accelerator": "cpu", "log_every_n_steps": 4}
    settings = {"overwrite": True}
    cli = LightningCLI(Classifier, Rows, trainer_defaults=defaults, save_config_kwargs=settings, run=False)
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    print("THE END")


if __name__ == "__main__":
    main()
