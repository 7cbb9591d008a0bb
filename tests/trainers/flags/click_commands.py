"""A group of click: decorators, a command added by hand, a group within the group."""

import click


@click.group()
@click.option("--verbose", "-v", count=True)
def cli(verbose):
    pass


@cli.command()
@click.option("--epochs", type=int, required=True)
@click.option("--lr", type=float, default=0.1)
def train_model(epochs, lr):
    pass


@click.command()
@click.option("--format", type=click.Choice(["h5", "keras"]), required=True)
def export(format):
    pass


cli.add_command(export, name="save")


@cli.group()
def data():
    pass


@data.command("prepare")
@click.option("--source", required=True)
def data_prepare(source):
    pass


if __name__ == "__main__":
    cli()
