"""Carries a trained talker over to another codec's codes, so that it need not begin from nothing.

Both codecs have written the same speech. Which entries of both stand for the same frames tells what the new ones mean:
a new entry begins as the mean of the old ones of its codebook, weighted by how often they share a frame. The talker
hears a frame as the sum of its entries' embeddings, so the embeddings are then moved by least squares until the sums
are those that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.network.talker import Talker
from training.pretrain.codec.frame_codes import CodedCorpus
from training.pretrain.errors import PretrainError

_MAX_FRAMES = 250_000
_FRAMES_PER_BATCH = 4096
# In frames: how strongly an entry is held at its mean. The code predictor reads the embeddings one by one, not as sums.
_RIDGE = 200.0


def paired_codes(
    before: CodedCorpus,
    after: CodedCorpus,
    *,
    codes_of: Callable[[Sequence[int]], list[Tensor]] | None = None,
    max_frames: int = _MAX_FRAMES,
) -> tuple[Tensor, Tensor]:
    """Codes of the same frames by two codecs, each int64 (frames, codebooks), of utterances from the whole corpus.

    Args:
        codes_of: writes utterances in the new codes at the pace of the old ones, where `after` has another.

    Raises:
        PretrainError: the codecs have written different corpora.
    """
    is_paced = codes_of is not None
    if len(before) != len(after) or (not is_paced and (before.num_frames != after.num_frames).any()):
        raise PretrainError("The codes to start from and the run's are not of the same corpus.")
    numbers = range(0, len(before), max(1, round(int(before.num_frames.sum()) / max_frames)))
    new = [after.codes(number) for number in numbers] if codes_of is None else codes_of(numbers)
    return torch.cat([before.codes(number) for number in numbers]), torch.cat(new)


@torch.no_grad()
def recode(talker: Talker, before: Tensor, after: Tensor) -> None:
    """Change the tables and heads of codebooks 1 and up from the codes `before` to those `after`.

    Codebook 0 stands for the content in both and is left as it is.

    Args:
        before: int64 (frames, codebooks), what the talker was trained on.
        after: the same frames by the new codec.

    Raises:
        PretrainError: the codes have more entries than the tables.
    """
    predictor = talker.code_predictor
    own = [_weight(table) for table in predictor.model.codec_embedding]
    # The codes are on the CPU, whatever device the talker is on.
    tables = [table.cpu() for table in own]
    if max(before.max(), after.max()) >= len(tables[0]):
        raise PretrainError(f"The codes have more than {len(tables[0])} entries, as many as the talker knows.")
    known = _sums(tables, before)
    for number, (table, head) in enumerate(zip(tables, map(_weight, predictor.lm_head), strict=True), start=1):
        shares = _shares(before[:, number], after[:, number], len(table))
        table.copy_(shares @ table)
        head.copy_(shares @ head.cpu())
    missing = known - _sums(tables, after)
    fitted = _fit(after[:, 1:], missing, len(tables[0]))
    for weight, table, moved in zip(own, tables, fitted, strict=True):
        weight.copy_(table + moved)


def _weight(module: nn.Module) -> Tensor:
    return module.get_parameter("weight").data


def _sums(tables: Sequence[Tensor], codes: Tensor) -> Tensor:
    """What the talker hears of each frame besides codebook 0: (frames, width)."""
    first, *rest = (functional.embedding(codes[:, number], table) for number, table in enumerate(tables, start=1))
    return sum(rest, first)


def _shares(before: Tensor, after: Tensor, num_entries: int) -> Tensor:
    """For each new entry (rows), how often it shares a frame with each old one, relative to its own use.

    An entry that no frame has keeps the old one of its number.
    """
    pairs = torch.bincount(after * num_entries + before, minlength=num_entries**2).view(num_entries, num_entries)
    counts = pairs.float() + (pairs.sum(dim=1) == 0).float().diag()
    return counts / counts.sum(dim=1, keepdim=True)


def _fit(codes: Tensor, wanted: Tensor, num_entries: int) -> Sequence[Tensor]:
    """For each codebook, rows (entries, width) whose sums over a frame's codes come near what is wanted of it."""
    num_columns = codes.shape[1] * num_entries
    offsets = torch.arange(codes.shape[1]) * num_entries
    products = torch.zeros(num_columns, num_columns)
    sums = torch.zeros(num_columns, wanted.shape[1])
    for some, of_them in zip(codes.split(_FRAMES_PER_BATCH), wanted.split(_FRAMES_PER_BATCH), strict=True):
        has = torch.zeros(len(some), num_columns).scatter_(1, some + offsets, 1.0)
        products += has.t() @ has
        sums += has.t() @ of_them
    products += _RIDGE * torch.eye(num_columns)
    found: Tensor = torch.cholesky_solve(sums, torch.linalg.cholesky(products))
    return found.view(codes.shape[1], num_entries, -1).unbind()
