"""Settings of pydantic that read the environment only."""

from pydantic_settings import BaseSettings


class Settings(BaseSettings):
    epochs: int = 3


settings = Settings()
