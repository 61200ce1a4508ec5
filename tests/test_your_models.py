"""The class of docs/your_models.md runs random GPT-2s of transformers, and writes the tokens of `generate`."""

import re

import pytest
from support import read

from sampling import as_model
from speculative import speculative_sampling

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.24")

N, K, PROMPT = 200, 4, [5, 17, 3]


def network(n_layer):
    """In float64, or almost equal logits may change places from pass to pass."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=101, n_positions=256, n_embd=32, n_head=4, initializer_range=0.4)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=n_layer, **sizes)).double().eval()


def test_the_tokens_are_those_of_generate():
    exec(re.search(r"```python\n([^`]*class Network.*?)```", read("docs/your_models.md"), re.DOTALL)[1], page := {})
    target, n_rounds = network(n_layer=3), []
    given = dict(max_new_tokens=N, do_sample=False, eos_token_id=None, pad_token_id=0)
    expected = target.generate(torch.tensor([PROMPT]), **given)[0].tolist()
    for draft in target, network(n_layer=1):
        rounds, models = [], [as_model(page["Network"](net), temperature=0) for net in (draft, target)]
        assert speculative_sampling(PROMPT, *models, N=N, K=K, on_round=rounds.append).tolist() == expected
        n_rounds.append(len(rounds))
    assert n_rounds[0] == N // (K + 1) < n_rounds[1]  # the target, as its own draft, always guesses right
