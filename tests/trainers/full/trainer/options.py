METRIC = "accuracy"


def tolerant_int(text):
    return int(float(text))


def add_data_flags(parser):
    group = parser.add_argument_group("data")
    group.add_argument("--data_dir", required=True)
