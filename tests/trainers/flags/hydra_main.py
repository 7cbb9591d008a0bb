"""Hydra: overrides instead of flags."""

import hydra


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    pass


if __name__ == "__main__":
    main()
