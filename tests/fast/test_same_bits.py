"""With fast.GPT2, the bits of a position's logits do not depend on how calls are grouped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models import bundled, random_gpt2

from fast import product
from fast.product import GROUPED


def check_bits(net, n, seed=0):
    """After a prompt of n ids, compare calls with n_rows rows with one row a call.

    Between them, there are calls with wrong ids. In every second case, the model remembers a
    text that begins like the prompt.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(net.n_vocab, size=n + 14)
    net.reset()
    expected = np.concatenate([net(ids[:end]) for end in range(n, len(ids) + 1)])
    for n_rows in (1, 2, 5, 6, 7, 13):
        net(np.append(ids[: max(n - 40, 0)], rng.integers(net.n_vocab, size=30)))
        if n_rows % 2:
            net.reset()
        for end in range(n + n_rows - 1, len(ids) + 1, n_rows):
            assert np.array_equal(net(ids[:end], n_rows), expected[end - n_rows + 1 - n :][:n_rows])
            wrong = ids[:end].copy()
            wrong[-1 - rng.integers(n_rows)] = rng.integers(net.n_vocab)
            net(wrong[: end - rng.integers(n_rows)])  # so the next call has to go back
    net.reset()
    for i in range(0, 15, 2):  # one position behind, as a draft after a round without a rejection
        assert np.array_equal(net(ids[: n + i])[0], expected[i])
    if product.matrix_kernel() == GROUPED or n <= product.MANY:  # a prompt makes no difference
        net.reset()
        assert np.array_equal(net(ids, len(ids))[n - 1 :], expected)


@pytest.mark.parametrize("n", [1, 30, 32, 33, 34, 65, 258, 259, 260, 512, 517, 518])
def test_bits_of_prompts(kernel, n):
    net = random_gpt2(n, n_vocab=301, n_ctx=560, n_embd=24, n_head=2, n_layer=2)
    check_bits(net, n)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 300),
    n_head=st.integers(1, 4),
    d=st.sampled_from([1, 8, 24, 64, 96]),
    n_layer=st.integers(1, 3),
)
def test_bits_of_random_models(seed, n, n_head, d, n_layer):
    net = random_gpt2(
        seed, n_vocab=301, n_ctx=330, n_embd=n_head * d, n_head=n_head, n_layer=n_layer
    )
    check_bits(net, n, seed)


@pytest.mark.parametrize(
    ("n_embd", "n_head", "n"),
    [(64, 1, 1040), (96, 1, 1040), (160, 1, 1040), (768, 12, 100)],
)
def test_bits_of_large_models(n_embd, n_head, n):
    check_bits(random_gpt2(0, n_vocab=500, n_ctx=1070, n_embd=n_embd, n_head=n_head, n_layer=1), n)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("draft", 9),
        ("draft", 300),
        ("target", 9),
        pytest.param("target", 300, marks=pytest.mark.slow),
    ],
)
def test_bits_of_the_bundled_pair(name, n):
    check_bits(bundled(name), n)
