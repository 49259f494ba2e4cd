"""Small scripts of frameworks' users: seconds on a CPU, nothing downloaded."""

LIGHTNING = """
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset
PACKAGE

import autotune
from autotune.integrations import lightning as tuned


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
        self.norms = []

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.net(x).float(), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
data = TensorDataset(torch.randn(512, 16), torch.randint(3, (512,)))
cfg = autotune.load("autotune.yaml", batch_size=32, grad_accum_steps=1)
module = Net()
trainer = tuned.trainer(
    cfg, max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
)
LOADER
trainer.fit(module, loader)
print("STEPS", trainer.global_step, trainer.accumulate_grad_batches, trainer.precision, loader.batch_size)
"""
OF_LIGHTNING = "import lightning"
OF_OLD_NAME = "import pytorch_lightning as lightning"
FROM_CONFIG = "loader = DataLoader(data, shuffle=True, **cfg.loader_kwargs())"
BY_HAND = "loader = DataLoader(data, 32, shuffle=True)"

_TRAINED = """
import torch
from transformers import HfArgumentParser, Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {"x": torch.randn(16, generator=generator), "labels": torch.tensor(index % 3)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))

    def forward(self, x, labels=None):
        logits = self.net(x)
        return {"loss": torch.nn.functional.cross_entropy(logits.float(), labels), "logits": logits}


torch.manual_seed(0)
"""
HUGGINGFACE = f"""{_TRAINED}
import autotune
from autotune.integrations import huggingface as tuned

cfg = autotune.load("autotune.yaml", batch_size=32, grad_accum_steps=1)
args = tuned.training_arguments(
    cfg, output_dir="out", num_train_epochs=EPOCHS, use_cpu=True, report_to="none", save_strategy="no"
)
trainer = Trainer(model=Model(), args=args, train_dataset=Data())
trainer.train()
print("STEPS", trainer.state.global_step, args.gradient_accumulation_steps, args.bf16, args.train_batch_size)
"""
UNEDITED_HUGGINGFACE = f"""{_TRAINED}
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=Model(), args=args, train_dataset=Data()).train()
"""
