"""jsonargparse's parser, with a class whose arguments are not written here."""

from elsewhere import Model
from jsonargparse import ActionConfigFile, ArgumentParser

parser = ArgumentParser()
parser.add_argument("--config", action=ActionConfigFile)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--amp", type=bool, default=False)
parser.add_class_arguments(Model, "model")
cfg = parser.parse_args()
