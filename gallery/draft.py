"""Drafts that report another p than the one that they drew from."""

import numpy as np

from gallery.variant import PROPOSE, entry
from sampling import sample


def marginals(x, draft_model, k_max):
    """The distribution of each of the next tokens, with those between summed out."""
    rows = []
    texts = {(): 1}
    for _ in range(k_max):
        longer = {}
        for tokens, probability in texts.items():
            row = draft_model([*x, *tokens])[-1]
            for token, share in enumerate(row):
                longer[(*tokens, token)] = probability * share
        texts = longer
        marginal = np.zeros_like(row)
        for tokens, probability in texts.items():
            marginal[tokens[-1]] += probability
        rows.append(marginal)
    return rows


def from_marginals(x, draft_model, k_max, rng):
    """Each token comes from its marginal distribution, whatever the ones before it are."""
    p = marginals(x, draft_model, k_max)
    drafted = [sample(row, rng) for row in p]
    return np.array(drafted, dtype=int), np.array(p)


VARIANTS = [
    entry("greedy-draft", "greedy draft with its ordinary p",
      ("sample(p, rng)", "p.argmax()"), of=PROPOSE,
      seen="until huggingface/transformers#33534; taken for a drawn one, until "
           "xLLM-AI/xllm#2175; "
           "with the best beam in place of the argmax, apple/ml-recurrent-drafter#6"),
    entry("top-k-draft", "top-k draft with the p of all tokens",
      ("sample(p, rng)", "sample(top_k(p), rng)"), of=PROPOSE,
      seen="until huggingface/transformers#48007; measured in huggingface/transformers#47932"),
    entry("other-temperature", "p at another request's temperature",
      ("rows.append(p)", "rows.append(colder(p))"), of=PROPOSE,
      seen="found in review of NVIDIA/TensorRT-LLM#12588"),
    entry("stale-p", "p of later guesses never written",
      ("rows.append(p)", "rows.append(rows[0] if rows else p)"), of=PROPOSE,
      looks="so the first guess's p stays there",
      seen="under CUDA graphs, until vllm-project/vllm#37639"),
    entry("mapped", "the token mapped to the target's ids, its row not",
      ("rows.append(p)", "rows.append(np.roll(p, 1))"), of=PROPOSE,
      looks="so p is that of another token", seen="alibaba/rtp-llm#1311"),
    entry("other-sequence", "the rows of another sequence",
      ("rows.append(p)", "rows.append(draft_model((x[:-1] + 1) % len(p))[-1])"), of=PROPOSE,
      looks="as if the batch had been reordered",
      seen="until vllm-project/vllm#14645; feared in vllm-project/vllm#41044"),
]  # fmt: skip
