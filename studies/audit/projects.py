"""Other people's projects, as they are: one function for each, which yields its settings.

Only the models are replaced, by those of harness.py where nothing else is said, and what
draws numbers. Here are packages that go on changing, and an example of each way into code:
a check, a loop with a cache, a notebook. The README says where the other programs are.
"""

from functools import partial
from importlib import import_module
from types import SimpleNamespace

import numpy as np

from studies.audit.harness import (
    EOS,
    PROMPT,
    K,
    N,
    Network,
    P,
    Q,
    Setting,
    Unpinned,
    by_rule,
    definitions,
    imported,
    last_rows,
    logits,
    model,
    named,
    plain,
)

try:
    import torch
except ImportError:  # a test wants to read the names only
    torch = None

# ---- transformers ----


def transformers():
    """The check of a round, and then `generate`. Older releases lack some arguments."""
    from transformers import GenerationConfig

    known = vars(GenerationConfig()).keys()
    yield check_of_transformers({})
    if "assistant_ensemble_weight" in known:
        yield check_of_transformers({"assistant_ensemble_weight": 0.9})
    yield from generate(known)


def check_of_transformers(given):
    from transformers.generation import utils

    check = utils._speculative_sampling
    if "is_done_candidate" in check.__code__.co_varnames:
        check = partial(check, is_done_candidate=False)

    def verify(drafted, p, q):
        ids = torch.tensor([[0, *drafted]])
        rows = p.log()[None], len(drafted), q.log()[None]
        return check(ids, *rows, **given)[0][0]

    return by_rule(named("_speculative_sampling", **given), verify)


def generate(known):
    """With real networks of random weights, which know three tokens, and see all of the text."""
    import transformers

    of_gpt2 = dict(n_positions=32, n_embd=8, n_head=2)
    gpt2 = partial(random_network, transformers.GPT2LMHeadModel, transformers.GPT2Config, **of_gpt2)
    of_llama = dict(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2)
    llama = partial(random_network, transformers.LlamaForCausalLM, transformers.LlamaConfig)
    large = gpt2(0, n_layer=2)
    by_draft = {"assistant_model": gpt2(1, n_layer=1)}
    by_lookup = {"prompt_lookup_num_tokens": K}
    fixed = {"num_assistant_tokens": K, "num_assistant_tokens_schedule": "constant"}
    fixed |= {"assistant_confidence_threshold": 0.0}
    until_2 = {"eos_token_id": 2}  # without it, some releases fail in lookup

    for own in {}, {"repetition_penalty": 1.5}:
        name = named(f"generate, fixed K = {K}", **own)
        yield Setting(name, by(large, by_draft, **fixed, **own), by(large, {}, **own))
    for more in {"assistant_confidence_threshold": 0.4}, {"assistant_ensemble_weight": 0.9}:
        if more.keys() <= known:
            name = named("generate", **more)
            yield Setting(name, by(large, by_draft, **fixed | more), by(large, {}))
    name = named("generate", **by_lookup, **until_2)
    yield Setting(name, by(large, by_lookup, **until_2), by(large, {}, **until_2))
    if "assistant_early_exit" in known:
        early = {"assistant_early_exit": 1}
        name = named("generate", **early)
        net = llama(0, **of_llama)
        yield Setting(f"{name}, a Llama", by(net, early), by(net, {}))
        yield Setting(f"{name}, a GPT-2", by(large, early), by(large, {}), raises=IndexError)


def random_network(kind, config, seed, **sizes):
    no_ids = dict(bos_token_id=None, eos_token_id=None, pad_token_id=0)
    torch.manual_seed(seed)
    sizes |= dict(vocab_size=3, initializer_range=0.3)
    return kind(config(**no_ids, **sizes)).eval()


def by(net, options, **given):
    """Decode with settings, which `generate` takes from the target or the draft, and changes."""
    from transformers import GenerationConfig

    ids = torch.tensor([[0, 1, 0, 1]])
    mask = torch.ones_like(ids)
    given = dict(max_new_tokens=N, do_sample=True, pad_token_id=0, top_k=0) | given

    def decode():
        for each in net, options.get("assistant_model", net):
            each.generation_config = GenerationConfig(**given)
        return net.generate(ids, attention_mask=mask, **options)[0, ids.shape[1] :]

    return decode


# ---- Another package ----


def mlx_lm():
    """With one guess per round, because each draw of a round multiplies the number of paths."""
    import mlx.core as mx
    from mlx_lm.generate import speculative_generate_step
    from mlx_lm.models.cache import KVCache

    class Net:
        layers = (None,)

        def __init__(self, rows):
            self.table = mx.array(np.log(rows), mx.float32)

        def make_cache(self):
            return [KVCache()]

        def __call__(self, ids, cache):
            states = ids[:, None, :, None].astype(mx.float32)
            tokens = cache[0].update_and_fetch(states, states)[0][:, 0, :, 0]
            sums = mx.cumsum(tokens.astype(mx.int32), axis=-1)
            return self.table[sums[:, -ids.shape[1] :] % len(P)]

    def sampler(logprobs):
        rows = np.exp(np.array(logprobs, dtype=float))
        rows /= rows.sum(axis=-1, keepdims=True)
        return mx.array([np.random.choice(len(row), p=row) for row in rows])

    def decode():
        prompt = mx.array([1, 3])  # with a sum of 0 modulo 4, as that of the others
        given = dict(num_draft_tokens=1, max_tokens=N, sampler=sampler)
        steps = speculative_generate_step(prompt, Net(Q), Net(P), **given)
        return [token for token, *_ in steps]

    yield Setting("speculative_generate_step, num_draft_tokens = 1", decode, plain())


PACKAGES = {"transformers": transformers, "mlx-lm": mlx_lm}


# ---- Clones ----


def tensorrt_llm(path):
    """The check of its sampler in PyTorch. Pinned memory, which needs a GPU, is left out."""
    file = path / "tensorrt_llm/_torch/pyexecutor/sampling_utils.py"
    wanted = "get_rejected_indices", "sample_rejected"
    code = definitions(file, *wanted, torch=Unpinned(), cast=lambda kind, value: value)
    generator = torch.Generator()

    def verify(drafted, p, q):
        rejected = code.get_rejected_indices(p, q[:-1], generator, drafted.tolist())
        if not len(rejected):
            return [*drafted, torch.multinomial(q[-1], 1)]
        n = int(rejected[0])
        return [*drafted[:n], code.sample_rejected(p, q, generator, n)]

    yield by_rule(f"get_rejected_indices, sample_rejected, K = {K}", verify)


class AtPlaces:
    """A network whose cache is written at places, as that of gpt-fast."""

    def __init__(self, rows):
        self.table, self.tokens = logits(rows), {}
        self.config = SimpleNamespace(block_size=99)

    def setup_caches(self, **_):
        self.tokens.clear()

    def __call__(self, ids, places):
        self.tokens |= zip(places.tolist(), ids[0].tolist())
        text = [self.tokens[place] for place in range(int(places[-1]) + 1)]
        return last_rows(self.table, torch.tensor([text]), ids.shape[1])


def gpt_fast(path):
    code = imported(path, "generate", unneeded=("model", "tokenizer"))
    prompt = torch.tensor(PROMPT, dtype=torch.int)

    def decode(given):
        target, draft = AtPlaces(Q), AtPlaces(P)
        options = dict(interactive=False, draft_model=draft, speculate_k=K, **given)
        return code.generate(target, prompt, N, **options)[0][len(PROMPT) :]

    given = dict(temperature=0.5, top_k=2)
    rows = code.logits_to_probs(logits(Q), **given).numpy()
    yield Setting(named("generate", speculate_k=K, **given), partial(decode, given), plain(rows))


def jaymody(path):
    code = imported(path, "main", unneeded=("gpt2", "utils"))

    def all_rows(rows):
        return lambda ids: model(rows)(ids, len(ids))

    def decode():
        found = code.speculative_sampling(PROMPT, all_rows(P), all_rows(Q), N, K)
        return found[len(PROMPT) :][:N]

    yield Setting(f"speculative_sampling, K = {K}", decode, plain())


def torchcode(path):
    file = path / "solutions/34_speculative_decoding_solution.ipynb"
    solution = definitions(file, torch=torch).speculative_decode

    def without_a_bonus(drafted, p, q):
        return solution(q[:-1], p, drafted)

    yield by_rule(f"solution of task 34, K = {K}", without_a_bonus)


def romsto(path):
    chain = imported(path, "sampling", unneeded=["termcolor"]).speculative_generate
    ngrams = import_module("ngram_assisted")
    warm = import_module("utils.logits_processor").MultinomialProcessor(1.0)
    fixed = dict(gamma=K, max_gen_len=N, logits_processor=warm)
    endless = dict(eos_tokens_id=9, first_target=False)

    def by_draft(given):
        return chain(PROMPT, Network(P), Network(Q), **fixed, **given)[0]

    def by_ngrams(given):
        text = [0, 3, 1, 0, 3, 1, 0]  # with a sum of 0 modulo 4, as that of the prompt
        args = text, ngrams.OneLevelNGramStorage(2, len(P)), Network(Q)
        return ngrams.ngram_assisted_speculative_generate(*args, **fixed, **given)[0]

    for given in endless, endless | dict(skip_sample_adjustment=True):
        yield Setting(named("speculative_generate", **given), partial(by_draft, given), plain())
    for given in endless, dict(eos_tokens_id=EOS, first_target=True):
        name = named("ngram_assisted_speculative_generate, n = 2", **given)
        yield Setting(name, partial(by_ngrams, given), plain(eos=given["eos_tokens_id"]))


CLONES = {
    "NVIDIA/TensorRT-LLM": ("053c42c", tensorrt_llm),
    "meta-pytorch/gpt-fast": ("e2cfa34", gpt_fast),
    "jaymody/speculative-sampling": ("03b4759", jaymody),
    "duoan/TorchCode": ("8a49ba1", torchcode),
    "romsto/Speculative-Decoding": ("db7db67", romsto),
}
