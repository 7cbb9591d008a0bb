"""Settings of pydantic that parse the command line, with a model within."""

from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Optimizer(BaseModel):
    lr: float = 0.1


class Settings(BaseSettings):
    model_config = SettingsConfigDict(cli_parse_args=True, cli_kebab_case=True, env_prefix="APP_")
    data_dir: str
    epochs: int = 3
    amp: bool = False
    size: int = Field(default=1, alias="width")
    optimizer: Optimizer = Optimizer()


settings = Settings()
