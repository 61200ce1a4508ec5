"""What the audit runs: one function per project, which yields (setting, fast, slow).

fast(rng) is its speculative decoding, slow(rng) its target's plain sampling. Only the
models are replaced, by those of harness.py where nothing else is said, and what draws
numbers. PyTorch and np.random draw from rng, too, so most functions never look at it.
"""

import inspect
import sys
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from unittest import mock

import numpy as np

from sampling import logits_to_probs
from studies.audit.harness import (
    K,
    N,
    P,
    Q,
    fake,
    functions,
    imported,
    logits,
    named,
    network,
    plain,
    rounds,
    rule,
)

try:
    import torch
except ImportError:  # a test wants to read the names only
    torch = None

# ---- Packages ----


def transformers():
    """The check of a round, and then `generate` with real networks. Older releases lack some arguments."""
    from transformers.generation import utils

    known = inspect.signature(utils._speculative_sampling).parameters

    def verify(given, drafted, p, q, rng):
        rows = torch.tensor([[0, *drafted]]), p.log()[None], len(drafted), q.log()[None]
        return utils._speculative_sampling(*rows, *[False] * ("is_done_candidate" in known), **given)[0][0]

    for given in {}, {"assistant_ensemble_weight": 0.9}:
        if given.keys() <= known.keys():
            yield named("_speculative_sampling", **given), rule(partial(verify, given)), plain()
    yield from generate()


def generate():
    import transformers as hf

    gpt2 = partial(random_network, hf.GPT2LMHeadModel, hf.GPT2Config, n_positions=32, n_embd=8, n_head=2)
    sizes = dict(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2)
    large, llama = gpt2(0, n_layer=2), random_network(hf.LlamaForCausalLM, hf.LlamaConfig, 0, **sizes)
    draft, lookup = dict(assistant_model=gpt2(1, n_layer=1)), dict(prompt_lookup_num_tokens=K)
    fixed = dict(num_assistant_tokens=K, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0)
    heuristic = dict(num_assistant_tokens=1, num_assistant_tokens_schedule="heuristic")
    eos, early = dict(eos_token_id=2), dict(assistant_early_exit=1)  # without eos, some releases fail in lookup
    known = vars(hf.GenerationConfig()).keys()

    for own in {}, dict(temperature=0.5, top_k=2, top_p=0.9), dict(repetition_penalty=1.5), eos:
        yield named(f"generate, fixed K = {K}", **own), by(large, draft, **fixed | own), by(large, {}, **own)
    for more in heuristic, dict(assistant_confidence_threshold=0.4), dict(assistant_ensemble_weight=0.9):
        if more.keys() <= known:
            yield named("generate", **more), by(large, draft, **fixed | more), by(large, {})
    yield named("generate", **lookup, **eos), by(large, lookup, **eos), by(large, {}, **eos)
    for name, net in {"a Llama": llama, "a GPT-2": large}.items() if early.keys() <= known else ():
        yield named("generate", **early) + f", {name}", by(net, early), by(net, {})


def by(net, options, **given):
    """Decode with these settings, which `generate` takes from the target or the draft, and changes."""
    from transformers import GenerationConfig

    given = dict(max_new_tokens=N, do_sample=True, pad_token_id=0, top_k=0) | given
    ids = torch.tensor([[0, 1, 0, 1]])

    def decode(rng):
        for each in net, options.get("assistant_model", net):
            each.generation_config = GenerationConfig(**given)
        return net.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :]

    return decode


def random_network(kind, config, seed, **sizes):
    no_ids = dict(bos_token_id=None, eos_token_id=None, pad_token_id=0)
    torch.manual_seed(seed)
    return kind(config(vocab_size=3, initializer_range=0.3, attn_implementation="eager", **no_ids, **sizes)).eval()


def sequential_speculative_decoding():
    from seqspecdecod import capped_hsd, naive_hsd, standard_sd

    networks = network(P), network(Q)

    def one_round(step, ids, rng):
        return step(*networks, torch.tensor([ids]), K, 1.0, 1.0)[0][0, len(ids) :]

    for step in standard_sd.standard_speculative_step, naive_hsd.naive_hsd_step, capped_hsd.capped_hsd_step:
        yield f"{step.__name__}, K = {K}", rounds(partial(one_round, step)), plain()


def mlx_lm():
    """For texts of few tokens, because each of the k + 1 draws of a round multiplies the number of paths."""
    import mlx.core as mx
    from mlx_lm.generate import speculative_generate_step
    from mlx_lm.models.cache import KVCache

    def forward(table, ids, cache=()):
        for layer in cache:
            layer.update_and_fetch(*[mx.zeros((1, 1, ids.shape[1], 4))] * 2)
        return table[ids]

    def run(rng, **given):
        def sampler(logprobs):
            rows = np.exp(np.array(logprobs, dtype=float))
            return mx.array([rng.choice(3, p=row / row.sum()) for row in rows])

        tables = (mx.array(np.log(rows), mx.float32) for rows in (Q, P))
        networks = (fake(partial(forward, t), layers=[None], make_cache=lambda: [KVCache()]) for t in tables)
        steps = speculative_generate_step(mx.array([1, 0]), *networks, sampler=sampler, **given)
        return [token for token, *_ in steps]

    for given in dict(num_draft_tokens=1, max_tokens=3), dict(num_draft_tokens=2, max_tokens=2):
        yield named("speculative_generate_step", **given), partial(run, **given), plain(n=given["max_tokens"])


PACKAGES = {
    "transformers": transformers,
    "sequential-speculative-decoding": sequential_speculative_decoding,
    "mlx-lm": mlx_lm,
}


# ---- Clones ----


def gpt_fast(path):
    code = imported(path, "generate", unneeded=("model", "tokenizer"))

    def forward(table, ids, places):
        return table[ids.long()]

    def one_round(given, ids, rng):
        networks = (partial(forward, logits(rows)) for rows in (Q, P))
        return code.speculative_decode(*networks, torch.tensor(ids[-1]), len(ids) - 1, K, **given)

    for given in dict(temperature=1.0, top_k=None), dict(temperature=0.5, top_k=2):
        rows = code.logits_to_probs(logits(Q), **given).numpy()
        yield named("speculative_decode", speculate_k=K, **given), rounds(partial(one_round, given)), plain(rows)


def hsd(path):
    for name, verify in hsd_rules(path).items():
        yield f"{name} of simulation.py, K = {K}", rule(verify), plain()


def hsd_rules(path):
    """The functions of simulation.py. The rest of that file draws figures."""
    code = functions(path / "simulation.py", torch=torch, F=torch.nn.functional, np=np)

    def verify(name, drafted, p, q, rng):
        return code[name](drafted[None], p[None], len(drafted), q[None])[0][0]

    return {name: partial(verify, name) for name in ("HSD", "blockwise", "tokenwise")}


def eagle(path):
    """Its hidden states are logits here. Of the 2 + 4 candidates of a tree, two are left out."""
    unneeded = [f"eagle.model.modeling_{name}_kv" for name in ("llama", "mixtral", "qwen2", "qwen3")]
    code, same = imported(path, "eagle.model.ea_model", unneeded), torch.nn.Identity()
    draft = fake(
        lambda hidden_states, input_ids, **_: (logits(P)[input_ids], None), top_k=2, depth=1, total_tokens=4,
        config=SimpleNamespace(vocab_size=3, draft_vocab_size=3), embed_tokens=SimpleNamespace(weight=logits(P)),
        tree_mask_init=torch.eye(2)[None, None], position_ids=torch.zeros(2), logsoftmax=torch.nn.LogSoftmax(-1),
        norm=same, lm_head=same, reset=mock.Mock(), reset_kv=mock.Mock(),
    )  # fmt: skip
    draft.topK_genrate = partial(code.Model.topK_genrate, draft)  # their spelling
    target = fake(
        lambda ids, **_: (None, logits(Q)[ids], logits(Q)[ids]), ea_layer=draft, base_model=mock.MagicMock(),
        use_eagle3=False, tokenizer=SimpleNamespace(eos_token_id=None), past_key_values=None,
        past_key_values_data=[torch.zeros(1, 99, 1)], current_length_data=torch.zeros(1),
    )  # fmt: skip

    def run(rng, **given):  # the first token comes before the first round, so there is one more
        text = code.EaModel.eagenerate(target, torch.tensor([[0]]), max_new_tokens=N, max_length=99, **given)
        return text[0, 1 : 2 + N]

    for given in dict(temperature=1.0), dict(temperature=0.5, top_p=0.8):
        rows = code.prepare_logits_processor(**given)(None, logits(Q)).softmax(-1).numpy()
        yield named("eagenerate, tree of top-2 children", **given), partial(run, **given), plain(rows, N + 1)


def deepspec(path):
    """The whole loop, with the drafts of DSpark's Markov head, which is unsure after token 1."""
    loop = imported(path, "deepspec.eval.base_evaluator")
    drafts = import_module("deepspec.eval.dspark.draft_ops")
    head = import_module("deepspec.modeling.dspark.markov_head").VanillaMarkov(vocab_size=3, markov_rank=1)
    head.compute_step_bias = lambda token_ids, hidden_states: logits(P)[token_ids]
    confidences = torch.tensor([[1.0], [-1.0], [1.0]])
    draft = SimpleNamespace(
        confidence_head=True, compute_logits=torch.zeros_like, sample_draft_tokens=head.sample_block_tokens,
        predict_confidence_step=lambda hidden, prev_token_ids: confidences[prev_token_ids],
    )  # fmt: skip

    def propose(threshold, output_ids, start, **_):
        fixed = dict(block_hidden=torch.zeros(1, K, 3), block_size=K, temperature=1.0, confidence_threshold=threshold)
        return drafts.build_dspark_proposal(draft, draft_input_ids=output_ids[:, [start]], **fixed)

    def run(threshold, eos, rng):
        return loop.generate_decoding_sample(
            input_ids=torch.tensor([[0]]), max_new_tokens=N, stop_token_ids=eos and [eos], init_context=mock.Mock(),
            propose=partial(propose, threshold), update=mock.Mock(), target_model=network(Q), max_proposal_tokens=K,
            temperature=1.0,
        ).output_ids[0, 1:]  # fmt: skip

    for threshold, eos in (0.5, None), (0.0, 2):
        name = named("generate_decoding_sample", block_size=K, confidence_threshold=threshold)
        yield name + f", stop token {eos}" * bool(eos), partial(run, threshold, eos), plain(eos=eos)


def dflash(path):
    """Its draft sees the last token of the text in all places."""
    code, same = imported(path, "dflash.model"), torch.nn.Identity()
    target = network(Q, model=SimpleNamespace(embed_tokens=same), lm_head=same)
    draft = fake(
        lambda noise_embedding, **_: logits(P)[noise_embedding[:, :1].expand(-1, 1 + K)],
        target_layer_ids=[0], mask_token_id=0,
    )  # fmt: skip

    def run(rng, **given):
        return code.dflash_generate(draft, target, torch.tensor([[0]]), N, None, **given)[0, 1:]

    for given in dict(block_size=2, temperature=0.5), dict(block_size=3, temperature=1.0):
        rows = logits_to_probs(np.log(Q), given["temperature"])
        yield named("dflash_generate", **given), partial(run, **given), plain(rows)


def feifeibear(path):
    """It raises an error where token 0 is drawn, so each token is one more here."""
    code = imported(path, "sampling.speculative_sampling")

    def forward(table, ids, past_key_values=None, use_cache=False):
        n = ids.shape[1] + (past_key_values[0][0].shape[2] if past_key_values else 0)
        return SimpleNamespace(logits=table[ids], past_key_values=[[torch.zeros(1, 1, n, 1)] * 2])

    def run(function, rng, **given):
        tables = (logits(np.pad(rows, ((1, 0), (1, 0)))) for rows in (P, Q))
        networks = (fake(partial(forward, table), device=table.device) for table in tables)
        return function(torch.tensor([[1]]), *networks, **given)[0, 1 : 1 + given["max_len"]] - 1

    for function in code.speculative_sampling, code.speculative_sampling_v2:
        for given in dict(gamma=K, max_len=2), dict(gamma=K, max_len=3, random_seed=1):
            yield named(function.__name__, **given), partial(run, function, **given), plain(n=given["max_len"])


def romsto(path):
    chain = imported(path, "sampling", unneeded=["termcolor"]).speculative_generate
    ngrams, processors = import_module("ngram_assisted"), import_module("utils.logits_processor")
    warm, cut = processors.MultinomialProcessor(1.0), processors.TopKNucleusProcessor(1.0, 2, 0.8)
    endless, to_2 = dict(eos_tokens_id=9, first_target=False), dict(eos_tokens_id=2, first_target=True)
    unadjusted, fixed = endless | dict(skip_sample_adjustment=True), dict(gamma=K, max_gen_len=N)

    def by_draft(rng, **given):
        return chain([0], network(P), network(Q), **fixed, **given)[0]

    def by_ngrams(rng, **given):
        args = [0, 1, 0, 1, 0], ngrams.OneLevelNGramStorage(2, 3), network(Q)
        return ngrams.ngram_assisted_speculative_generate(*args, **fixed, **given)[0]

    for processor, more in (warm, endless), (cut, endless), (warm, to_2), (warm, unadjusted):
        name = named(f"speculative_generate, gamma = {K}, {type(processor).__name__}", **more)
        slow = plain(processor(logits(Q)).numpy(), eos=more["eos_tokens_id"])
        yield name, partial(by_draft, logits_processor=processor, **more), slow
    for more in endless, to_2:
        name = named(f"ngram_assisted_speculative_generate, n = 2, gamma = {K}", **more)
        yield name, partial(by_ngrams, logits_processor=warm, **more), plain(eos=more["eos_tokens_id"])


def lucidrains(path):
    """Its Gumbel noise is replaced by torch.multinomial."""
    code, own = (imported(path, f"speculative_decoding.speculative_decoding{name}") for name in ("", "_with_prophet"))
    code.gumbel_sample = own.gumbel_sample = lambda x, temperature, dim: torch.multinomial(x.softmax(-1), 1)[..., 0]

    def forward(rows, ids, return_early_exit_only=False, **_):
        kv = torch.zeros(len(ids), 1, ids.shape[1], 1)
        return logits(P if return_early_exit_only else rows)[ids], code.Cache(kv, kv[:, 0])

    target, draft = partial(forward, Q), partial(forward, P)
    both = SimpleNamespace(model=target, prophet=draft, to_prophet_start_token=lambda x: x, num_leading_start_tokens=1)

    def run(function, networks, n, rng):
        return function(*networks, torch.tensor([[0]]), 1 + n, K, filter_thres=0.0)[0]

    for function, n, *networks in (
        (code.speculative_decoding, N, target, draft),
        (code.speculative_decoding_with_same_model, N, target),
        (own.speculative_decoding_with_prophet_model, N + 1, both),  # its first token comes before the first round
    ):
        yield f"{function.__name__}, gamma = {K}", partial(run, function, networks, n), plain(n=n)
    yield from decoders(code)


def decoders(code):
    """Two small networks of lucidrains' own."""
    networks = []
    for seed, depth in (0, 2), (1, 1):
        torch.manual_seed(seed)
        networks.append(code.Decoder(num_tokens=3, dim=8, depth=depth, heads=1, dim_head=8).eval())

    def together(texts, rng):
        return code.speculative_decoding(*networks, torch.tensor(texts), N, 1, filter_thres=0.0)[0]

    def one_by_one(texts, rng):
        return torch.cat([code.base_decoding(networks[0], torch.tensor([text]), N, filter_thres=0.0) for text in texts])

    for texts in [[0]], [[0], [1]]:
        name = f"speculative_decoding of two small Decoders, gamma = 1, batch = {len(texts)}"
        yield name, partial(together, texts), partial(one_by_one, texts)


def jaymody(path):
    code = imported(path, "main", unneeded=("gpt2", "utils"))
    args = [0], lambda ids: P[ids], lambda ids: Q[ids], N, K
    yield f"speculative_sampling, K = {K}", lambda rng: code.speculative_sampling(*args)[1 : 1 + N], plain()


def torchcode(path):
    solution = functions(path / "solutions/34_speculative_decoding_solution.ipynb", torch=torch)["speculative_decode"]
    yield f"solution of task 34, K = {K}", rule(lambda drafted, p, q, rng: solution(q, p, drafted)), plain()


def leetgpu(path):
    """Its output is filled with zeros, so each token is one more here."""
    sys.path.insert(0, str(path / "challenges"))
    code = imported(path / "challenges/medium/87_speculative_decoding_verification", "challenge")
    code.float = lambda number: number  # a stand-in for a random number can't become a float

    def verify(drafted, p, q, rng):
        p, q = (torch.nn.functional.pad(rows, (1, 0))[None].float() for rows in (p, q[:-1]))
        tokens, uniform = drafted[None].int() + 1, torch.rand(1, len(drafted) + 1)
        out, uniform.dtype = torch.zeros(1, len(drafted) + 1, dtype=torch.int32), torch.float32
        code.Challenge.reference_impl(None, tokens, p, q, uniform, out, 1, len(drafted), 4)
        return out[out > 0] - 1

    yield f"reference_impl of challenge 87, T = {K}", rule(verify), plain()


def from_scratch(path):
    """The code of lesson 10/25 knows one row only, so it gets the same one after each token."""
    step, server = (imported(next(path.glob(f"phases/{x}/code")), "main") for x in ("10-*/25-*", "19-*/14-*"))
    page = functions(next(path.glob("phases/10-*/25-*/docs/en.md")), np=np, softmax=np.exp)

    def of_code(ids, rng):
        return step.speculative_step(Q[0], P[0], K, rng)

    def of_page(ids, rng):
        page.update(draft_state_init=lambda: ids, draft_step=lambda state, token: [*state, token])
        page["target_forward_batched"] = lambda net, drafted, temperature: Q[[ids[-1], *drafted]]
        return page["speculative_step"](None, lambda state: np.log(P[state[-1]]), K)

    def verify(drafted, p, q, rng):
        target = server.TargetModel()
        target.distribution = lambda place: q[place].tolist()
        accepted, token = target.verify(drafted.tolist(), 0, rng)
        return [*accepted, token]

    yield f"lesson 10/25, code, one row, K = {K}", rounds(of_code), plain(Q[[0, 0, 0]])
    yield f"lesson 10/25, page, K = {K}", rounds(of_page), plain()
    yield f"lesson 19/14, code, K = {K}", rule(verify), plain()


def shreyansh(path):
    code = imported(path, "common.verification")

    def verify(drafted, p, q, rng):
        network = lambda ids: SimpleNamespace(logits=q[None].log())  # noqa: E731
        return code.probabilistic_verify(network, [0], drafted.tolist(), p, "a generator").emitted_ids

    yield f"probabilistic_verify, K = {K}", rule(verify, needs_a_guess=False), plain()


CLONES = {
    "meta-pytorch/gpt-fast": ("e2cfa34", gpt_fast),
    "ZhouYuxuanYX/Hierarchical-Speculative-Decoding": ("e342adf", hsd),
    "SafeAILab/EAGLE": ("cb7e084", eagle),
    "deepseek-ai/DeepSpec": ("afdfa7c", deepspec),
    "z-lab/dflash": ("44947fb", dflash),
    "feifeibear/LLMSpeculativeSampling": ("59a209d", feifeibear),
    "romsto/Speculative-Decoding": ("db7db67", romsto),
    "lucidrains/speculative-decoding": ("72171ac", lucidrains),
    "jaymody/speculative-sampling": ("03b4759", jaymody),
    "duoan/TorchCode": ("8a49ba1", torchcode),
    "AlphaGPU/leetgpu-challenges": ("5a5c5d8", leetgpu),
    "rohitg00/ai-engineering-from-scratch": ("6b10711", from_scratch),
    "shreyansh26/Speculative-Decoding": ("76335be", shreyansh),
}
