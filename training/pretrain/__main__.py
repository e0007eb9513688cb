"""`python -m training.pretrain STAGE ...`: the stages that make the embedded checkpoint, in order."""

from __future__ import annotations

import importlib
import sys

from training.model.errors import EncoreError

# Stage -> the module whose `main(arguments) -> int` runs it. Imported on use: making the corpus needs no torch.
STAGES = {
    "corpus": "training.pretrain.corpus.make_corpus",
    "tokenizer": "training.pretrain.codec.command",
    "talker": "training.pretrain.talker.command",
    "speaker": "training.pretrain.speaker.command",
    "voices": "training.pretrain.corpus.sample_voices",
    "all": "training.pretrain.train_all",
    "pack": "training.pretrain.pack.pack",
}


def main(arguments: list[str]) -> int:
    """Run one stage with the arguments after its name; returns the exit status."""
    if not arguments or arguments[0] not in STAGES:
        print(f"usage: python -m training.pretrain {{{','.join(STAGES)}}} [--help]", file=sys.stderr)
        return 2
    stage = importlib.import_module(STAGES[arguments[0]])
    try:
        return int(stage.main(arguments[1:]))
    except EncoreError as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
