"""Trains a convolution, a matrix product and an attention, and prints in which formats they really ran, as JSON."""

import json
from collections import defaultdict

import torch
import torch.nn.functional as functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset


class Watch(TorchDispatchMode):
    """Notes the formats of the operands of every weighty operation, by part of the step."""

    WEIGHTY = ("addmm", "mm", "bmm", "convolution", "scaled_dot_product", "mse_loss")

    def __init__(self):
        super().__init__()
        self.part = "forward"
        self.formats = defaultdict(set)

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        name = operation.overloadpacket.__name__.lstrip("_")
        for weighty in self.WEIGHTY:
            if name.startswith(weighty):
                operands = [value for value in arguments if isinstance(value, torch.Tensor)]
                self.formats[f"{self.part} {weighty}"] |= {str(value.dtype) for value in operands}
        return operation(*arguments, **(keywords or {}))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 3)
        self.linear = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x):
        x = self.conv(x).flatten(2).transpose(1, 2).unsqueeze(1).contiguous()  # as the fused attention takes it
        x = functional.scaled_dot_product_attention(self.linear(x), x, x)
        return self.head(x).mean((1, 2))


torch.manual_seed(0)
inputs = torch.randn(256, 1, 6, 6)
targets = inputs.mean((1, 2, 3)).unsqueeze(1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
said = {"at_loss": [], "in_backward": [], "after_step": [], "evaluation": []}
watch = Watch()
with watch:
    for _epoch in range(2):
        for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=64):
            optimizer.zero_grad()
            watch.part = "forward"
            output = model(x)
            watch.part = "loss"
            loss = functional.mse_loss(output, y)
            said["at_loss"].append(torch.is_autocast_enabled("cpu"))
            loss.register_hook(lambda grad: said["in_backward"].append(torch.is_autocast_enabled("cpu")))
            watch.part = "backward"
            loss.backward()
            optimizer.step()
            said["after_step"].append(torch.is_autocast_enabled("cpu"))
            said["loss_format"] = str(loss.dtype)
        watch.part = "evaluation"
        with torch.no_grad():
            said["evaluation"].append(str(model(inputs[:8]).dtype))
said["weight_format"] = str(model.linear.weight.dtype)
said["grad_format"] = str(model.linear.weight.grad.dtype)
said["formats"] = {name: sorted(formats) for name, formats in watch.formats.items()}
print(json.dumps(said))
