"""Maps the tensors of a checkpoint folder to networks, by prefix.

The networks use the names of the public files, so no tensor is renamed so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

SPEECH_TOKENIZER_FOLDER = "speech_tokenizer"
ADAPTER_FILE = "adapter_model.safetensors"


@dataclass(frozen=True, kw_only=True)
class Component:
    """Where one network's weights are in a checkpoint folder.

    `folder` is relative to the checkpoint, and empty for the checkpoint itself. In the file a tensor is called `prefix`
    + its name in the network, unless `renames` maps the file's full name to the network's. A tensor that belongs to no
    network is an error, unless its full name is in `ignored`.
    """

    folder: str
    prefix: str
    renames: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()

    def name_in_network(self, name_in_file: str) -> str | None:
        """The network's name for a tensor of the file; None if it belongs to another network or is ignored."""
        if name_in_file in self.ignored:
            return None
        if name_in_file in self.renames:
            return self.renames[name_in_file]
        return name_in_file.removeprefix(self.prefix) if name_in_file.startswith(self.prefix) else None


COMPONENTS: Mapping[str, Component] = MappingProxyType(
    {
        "talker": Component(folder="", prefix="talker."),
        "speaker_encoder": Component(folder="", prefix="speaker_encoder."),
        "speech_tokenizer": Component(folder=SPEECH_TOKENIZER_FOLDER, prefix=""),
    }
)


# A codebook is stored as a running sum of vectors and a running count, and used as their quotient. Rounding both to
# bfloat16 moves the entries enough to change which one is nearest.
_CODEBOOK_STATISTICS = ("cluster_usage", "embedding_sum", "embed_sum", "initialized")


def is_codebook_statistic(name: str) -> bool:
    """Whether a tensor is a codebook's sum or count, which stay float32 with any dtype of the network."""
    return name.rpartition(".")[2] in _CODEBOOK_STATISTICS
