"""The class of docs/your_models.md runs random GPT-2s of transformers, as `generate` does."""

import re

import pytest
from support.programs import read

from enumeration import assert_same_distribution
from sampling import as_model
from speculative import autoregressive_sampling, speculative_sampling

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.24")

torch.set_num_threads(1)  # of networks so small, a second thread would only wait, in a loop

PROMPT = [5, 17, 3]


@pytest.fixture
def network_of_the_page():
    page = read("docs/your_models.md")
    block = re.search(r"```python\n([^`]*class Network.*?)```", page, re.DOTALL)
    names = {}
    exec(block[1], names)
    return names["Network"]


def random_network(n_layer, vocab_size):
    torch.manual_seed(0)
    sizes = dict(n_positions=128, n_embd=32, n_head=4, initializer_range=0.4)
    config = transformers.GPT2Config(n_layer=n_layer, vocab_size=vocab_size, **sizes)
    return transformers.GPT2LMHeadModel(config).eval()


def test_the_tokens_are_those_of_generate(network_of_the_page):
    """A GPT-2 in float64. In float32, almost equal logits may change places from pass to pass."""
    draft, target = (random_network(n, vocab_size=101).double() for n in (1, 3))
    given = dict(max_new_tokens=50, do_sample=False, eos_token_id=None, pad_token_id=0)
    expected = target.generate(torch.tensor([PROMPT]), **given)[0].tolist()

    def n_rounds(draft):
        rounds = []
        models = [as_model(network_of_the_page(net), temperature=0) for net in (draft, target)]
        text = speculative_sampling(PROMPT, *models, N=50, K=4, on_round=rounds.append)
        assert text.tolist() == expected
        return len(rounds)

    assert n_rounds(target) == 10  # as its own draft, it guesses right
    assert n_rounds(draft) > 10


@pytest.mark.parametrize(("n_layer", "N", "K"), [(1, 3, 2), (2, 2, 1)])  # the target has 2 layers
def test_a_cache_that_rounds_leaves_the_distribution_alone(network_of_the_page, n_layer, N, K):
    """One prefix is computed in several ways, and in float32 its logits differ by 1e-7."""
    networks = [random_network(n, vocab_size=2) for n in (n_layer, 2)]
    draft, target = (as_model(network_of_the_page(net)) for net in networks)
    assert_same_distribution(
        lambda rng: speculative_sampling([0, 1], draft, target, N, K, rng),
        lambda rng: autoregressive_sampling([0, 1], target, N, rng),
        tolerance=1e-6,
    )
