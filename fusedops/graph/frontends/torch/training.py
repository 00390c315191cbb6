"""What torch's operators say of training: its dropouts and batch norms by `train`, `training` and `dropout_p`."""

_SWITCHES = {"train", "training", "dropout_p"}


def draws(torch, target, given):
    """Whether an operator with these arguments draws random numbers."""
    switched = _SWITCHES & {a.name for a in target._schema.arguments}
    return torch.Tag.nondeterministic_seeded in target.tags and (not switched or bool(given.get("train")))


def refuse(torch, target, given, where):
    """Raises ValueError where an operator works as in training, which a network has no form of."""
    random, name = torch.Tag.nondeterministic_seeded in target.tags, target._schema.name
    dropout = given.get("dropout_p", 0.0) > 0 or given.get("train") and given.get("dropout", given.get("p", 0)) > 0
    if (dropout or random and given.get("training")) and name.rstrip("_") != "aten::dropout":
        raise ValueError(f"{name} drops values at random{where}, as in training: let the module do so in training only")
    if given.get("training") and given.get("running_mean") is not None:
        raise ValueError(
            f"{name} takes its statistics from the batch{where} and keeps them, as in training: a network takes those "
            "that the module has kept"
        )
