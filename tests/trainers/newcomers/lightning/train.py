"""A line, by LightningCLI."""

import os

import hypertune
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader, TensorDataset


class Points(LightningDataModule):
    def train_dataloader(self):
        x = torch.randn(128, 3, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(x, x @ torch.tensor([[1.0], [-2.0], [0.5]])), batch_size=32)


class Line(LightningModule):
    def __init__(self, learning_rate: float = 0.1):
        super().__init__()
        self.learning_rate = learning_rate
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, _):
        x, y = batch
        self.loss = torch.nn.functional.mse_loss(self.layer(x), y)
        return self.loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate)

    def on_train_end(self):
        hypertune.HyperTune().report_hyperparameter_tuning_metric("loss", float(self.loss), self.global_step)
        folder = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1)
        os.makedirs(folder, exist_ok=True)
        torch.save(self.layer.state_dict(), os.path.join(folder, "model.pt"))


def main():
    LightningCLI(Line, Points, trainer_defaults={"max_epochs": 2, "logger": False, "enable_checkpointing": False})


if __name__ == "__main__":
    main()
