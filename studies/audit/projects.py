"""Libraries and papers, as they are: one function per project, which yields its settings.

Only the models are replaced, by those of harness.py where nothing else is said, and what
draws numbers.
"""

from functools import partial
from importlib import import_module
from types import SimpleNamespace
from unittest import mock

import numpy as np

from sampling import logits_to_probs
from studies.audit.harness import (
    EOS,
    PROMPT,
    Cache,
    K,
    N,
    Network,
    P,
    Q,
    Rounds,
    Setting,
    Unpinned,
    by_rule,
    definitions,
    imported,
    last_rows,
    logits,
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


# ---- Other packages ----


def sequential_speculative_decoding():
    from seqspecdecod import capped_hsd, standard_sd

    networks = Network(P), Network(Q)

    def one_round(step, ids):
        found = step(*networks, torch.tensor([ids]), K, 1.0, 1.0)
        return found[0][0, len(ids) :]

    for step in standard_sd.standard_speculative_step, capped_hsd.capped_hsd_step:
        yield Rounds(f"{step.__name__}, K = {K}", partial(one_round, step))


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


PACKAGES = {
    "transformers": transformers,
    "sequential-speculative-decoding": sequential_speculative_decoding,
    "mlx-lm": mlx_lm,
}


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


def hsd(path):
    for name, verify in hsd_rules(path).items():
        yield by_rule(f"{name} of simulation.py, K = {K}", verify)


def hsd_rules(path):
    """Functions of simulation.py. The rest of that file draws figures."""
    names = "HSD", "blockwise"
    used = dict(torch=torch, F=torch.nn.functional, np=np)
    code = definitions(path / "simulation.py", *names, **used)

    def verify(function, drafted, p, q):
        return function(drafted[None], p[None], len(drafted), q[None])[0][0]

    return {name: partial(verify, getattr(code, name)) for name in names}


class EagleTarget:
    """The target of EAGLE. A hidden state is the sum of the tokens up to its place."""

    use_eagle3 = False
    tokenizer = SimpleNamespace(eos_token_id=None)

    def __init__(self, draft):
        self.ea_layer, self.table = draft, logits(Q)
        self.base_model, self.past_key_values = mock.MagicMock(), None
        self.past_key_values_data = [torch.zeros(1, 99, 1)]
        self.current_length_data = torch.zeros(1)

    def __call__(self, ids, **_):
        start = int(self.current_length_data)
        n = ids.shape[1]
        cache = self.past_key_values_data[0]
        cache[0, start : start + n, 0] = ids[0].float()
        self.current_length_data += n
        mask = self.base_model.model.tree_mask  # who sees whom in a tree
        mask = torch.ones(n, n).tril() if mask is None else mask[0, 0]
        sums = cache[0, :start].sum() + mask @ ids[0].float()
        return None, self.table[sums.long() % len(Q)][None], sums[None, :, None]


class EagleDraft:
    """The draft of EAGLE: a hidden state and the token after it make the next hidden state."""

    top_k, depth, total_tokens = 2, 1, 4
    norm = staticmethod(lambda sums: sums)

    def __init__(self):
        self.config = SimpleNamespace(vocab_size=len(P), draft_vocab_size=len(P))
        self.logsoftmax = partial(torch.log_softmax, dim=-1)
        self.tree_mask_init, self.position_ids = torch.eye(2)[None, None], torch.zeros(2)
        self.embed_tokens = SimpleNamespace(weight=logits(P))

    def reset_kv(self):
        self.stable_kv = None

    def reset(self):
        pass

    def lm_head(self, sums):
        return logits(P)[sums[..., 0].long() % len(P)]

    def __call__(self, sums, input_ids, past_key_values=None, **_):
        n_before = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        keys = torch.zeros(1, 1, n_before + input_ids.shape[1], 1)
        return sums + input_ids[..., None], [[keys]]


def eagle(path):
    """Two of the 2 + 4 candidates of a tree are left out."""
    names = "llama", "mixtral", "qwen2", "qwen3"
    unneeded = [f"eagle.model.modeling_{name}_kv" for name in names]
    code = imported(path, "eagle.model.ea_model", unneeded)
    EagleDraft.topK_genrate = code.Model.topK_genrate  # their spelling
    target = EagleTarget(EagleDraft())

    def decode(given):
        ids = torch.tensor([PROMPT])
        options = dict(max_new_tokens=N - 1, max_length=99, **given)
        found = code.EaModel.eagenerate(target, ids, **options)
        return found[0, len(PROMPT) :][:N]

    for given in dict(temperature=1.0), dict(temperature=0.5, top_p=0.8):
        rows = code.prepare_logits_processor(**given)(None, logits(Q)).softmax(-1).numpy()
        name = named("eagenerate, tree of top-2 children", **given)
        yield Setting(name, partial(decode, given), plain(rows))


class DSpark:
    """The draft of DeepSpec: a backbone that has seen the text, and a head that sees one token."""

    confidence_head = True

    def __init__(self, head):
        self.table, self.sample_draft_tokens = logits(P), head.sample_block_tokens
        self.confidences = torch.tensor([[1.0], [-1.0], [1.0], [1.0]])  # unsure after token 1
        head.compute_step_bias = self.row_after

    def row_after(self, token, sums):
        return self.table[(sums[:, 0].long() + token) % len(P)]

    def compute_logits(self, sums):
        return torch.zeros(1, K, len(P))

    def predict_confidence_step(self, sums, prev_token_ids):
        return self.confidences[prev_token_ids]


def deepspec(path):
    """The whole loop, with the drafts of DSpark's Markov head."""
    loop = imported(path, "deepspec.eval.base_evaluator")
    loop.DynamicCache = Cache
    build = import_module("deepspec.eval.dspark.draft_ops").build_dspark_proposal
    markov = import_module("deepspec.modeling.dspark.markov_head").VanillaMarkov
    draft = DSpark(markov(vocab_size=len(P), markov_rank=1))
    drafting = dict(block_size=K, confidence_threshold=0.5)
    decoding = dict(max_new_tokens=2, stop_token_ids=[EOS])

    def propose(output_ids, start, **_):
        before = output_ids[0, :start].sum()
        sums = torch.stack([before, before + output_ids[0, start]])[None, :, None]
        ids = output_ids[:, [start]]
        seen = dict(draft_input_ids=ids, block_hidden=sums)
        return build(draft, temperature=1.0, **seen, **drafting)

    def decode():
        ids = torch.tensor([PROMPT])
        parts = dict(init_context=mock.Mock(), propose=propose, update=mock.Mock())
        parts |= dict(target_model=Network(Q), max_proposal_tokens=K, temperature=1.0)
        found = loop.generate_decoding_sample(input_ids=ids, **parts, **decoding)
        return found.output_ids[0, len(PROMPT) :]

    name = named("generate_decoding_sample", **drafting, **decoding)
    yield Setting(name, decode, plain(n=2, eos=EOS))


class Parallel(Network):
    """The draft of dflash, which sees the text, and makes all guesses from one row."""

    def __call__(self, target_hidden, noise_embedding, past_key_values, **_):
        tokens = past_key_values.read(torch.cat([target_hidden[..., 0], noise_embedding], dim=1))
        row = last_rows(self.table, tokens, 1)
        return row.expand(1, noise_embedding.shape[1], len(P))


def dflash(path):
    code = imported(path, "dflash.model")
    same = torch.nn.Identity()
    code.DynamicCache = Cache
    target = Network(Q, model=SimpleNamespace(embed_tokens=same), lm_head=same)
    draft = Parallel(P, target_layer_ids=[0], mask_token_id=0)

    def decode(given):
        ids = torch.tensor([PROMPT])
        return code.dflash_generate(draft, target, ids, N, None, **given)[0, len(PROMPT) :]

    given = dict(block_size=2, temperature=0.5)
    rows = logits_to_probs(np.log(Q), given["temperature"])
    yield Setting(named("dflash_generate", **given), partial(decode, given), plain(rows))


def lucidrains(path):
    """Its Gumbel noise is replaced by torch.multinomial."""
    code = imported(path, "speculative_decoding.speculative_decoding")
    code.gumbel_sample = draw

    def net(rows):
        def forward(ids, **_):
            kv = torch.zeros(len(ids), 1, ids.shape[1], 1)
            return last_rows(logits(rows), ids, ids.shape[1]), code.Cache(kv, kv[:, 0])

        return forward

    target, draft = net(Q), net(P)

    def decode():
        ids = torch.tensor([PROMPT])
        length = len(PROMPT) + N
        return code.speculative_decoding(target, draft, ids, length, 1, filter_thres=0.0)[0]

    yield Setting("speculative_decoding, gamma = 1", decode, plain())
    yield from decoders(code)


def draw(x, temperature, dim):
    return torch.multinomial(x.softmax(-1), 1)[..., 0]


def decoders(code):
    """Two small networks of lucidrains' own, with three tokens and random weights."""
    nets = []
    for seed, depth in (0, 2), (1, 1):
        torch.manual_seed(seed)
        nets.append(code.Decoder(num_tokens=3, dim=8, depth=depth, heads=1, dim_head=8).eval())

    def together(texts):
        return code.speculative_decoding(*nets, torch.tensor(texts), 3, 1, filter_thres=0.0)[0]

    def one_by_one(texts):
        alone = partial(code.base_decoding, nets[0], seq_len=3, filter_thres=0.0)
        return torch.cat([alone(torch.tensor([text])) for text in texts])

    for texts in [[0]], [[0], [1]]:
        name = f"speculative_decoding of two small Decoders, gamma = 1, batch = {len(texts)}"
        yield Setting(name, partial(together, texts), partial(one_by_one, texts))


CLONES = {
    "NVIDIA/TensorRT-LLM": ("053c42c", tensorrt_llm),
    "meta-pytorch/gpt-fast": ("e2cfa34", gpt_fast),
    "ZhouYuxuanYX/Hierarchical-Speculative-Decoding": ("e342adf", hsd),
    "SafeAILab/EAGLE": ("cb7e084", eagle),
    "deepseek-ai/DeepSpec": ("afdfa7c", deepspec),
    "z-lab/dflash": ("44947fb", dflash),
    "lucidrains/speculative-decoding": ("72171ac", lucidrains),
}
