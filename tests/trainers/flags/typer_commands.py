"""Several commands of a Typer app, and one app within another."""

import typer
from typing_extensions import Annotated

app = typer.Typer()
tools = typer.Typer()
app.add_typer(tools, name="tools")


@app.callback()
def main(verbose: bool = False):
    pass


@app.command()
def train(epochs: Annotated[int, typer.Option()], lr: float = 0.1):
    pass


@app.command("save")
def export(format: str = typer.Option(...)):
    pass


@tools.command()
def clean(force: bool = False):
    pass


if __name__ == "__main__":
    app()
