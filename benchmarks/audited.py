"""What the audit runs: one function per package or repository, which yields (setting, fast, slow).

fast(rng) is its speculative decoding, and slow(rng) its target's plain sampling. Only
the models and the functions that draw numbers are replaced. Models are tables, and get
the rows of lab/gallery.py, where nothing else is said.
"""

import ast
import functools
import importlib
import inspect
import json
import re
import sys
import types
from pathlib import Path
from unittest import mock

import numpy as np

from lab.gallery import P, Q
from speculative import autoregressive_sampling, propose, speculative_sampling

ROOT = str(Path(__file__).resolve().parent.parent)
N, K = 3, 2


def options(given):
    return ", ".join(f"{name} = {value}" for name, value in given.items())


def table_model(rows):
    """A model whose row depends on the last token only."""
    return lambda ids, n_rows=1: rows[np.asarray(ids)[-n_rows:]]


def table_network(rows):
    """The same in PyTorch: ids [1, n] -> logits [1, n, 3]."""
    import torch

    table = torch.tensor(rows).log()

    def network(ids=None, *args, input_ids=None, **_):
        logits = table[(input_ids if ids is None else ids).long()]
        return types.SimpleNamespace(logits=logits, hidden_states=[logits] * 2, past_key_values=None)

    network.device = torch.device("cpu")
    network.config = types.SimpleNamespace(vocab_size=len(rows), max_position_embeddings=99)
    return network


def tempered(rows, temperature):
    return rows ** (1 / temperature) / (rows ** (1 / temperature)).sum(axis=-1, keepdims=True)


def plain(rng, rows=Q, n=N, eos=None):
    return autoregressive_sampling([0], table_model(rows), n, rng, eos=eos)[1:]


def completed(one_round):
    """Turn one_round(ids, rng) -> new tokens into decode(rng), which repeats rounds until there are N new tokens."""

    def decode(rng):
        ids = [0]
        while len(ids) < 1 + N:
            ids += [int(token) for token in one_round(ids, rng)]
        return ids[1 : 1 + N]

    decode.one_round = lambda rng: one_round([0], rng)
    return decode


def with_rule(verify):
    """Turn verify(drafted, p, q, rng) into decode(rng)."""
    draft, target = table_model(P), table_model(Q)

    def one_round(rng):
        drafted, p = propose([0], draft, K, rng)
        return verify(drafted, p, target([0, *drafted], K + 1), rng)

    def decode(rng):
        return speculative_sampling([0], draft, target, N, K, rng, verify=verify)[1:]

    decode.one_round = one_round
    return decode


def unless_empty(verify):
    """Turn a rule that needs at least one guess into one that also takes none."""
    return lambda drafted, p, q, rng: verify(drafted, p, q, rng) if len(drafted) else [rng.choice(len(q[0]), p=q[0])]


def drawing(function):
    """Turn function(), which draws from PyTorch, into draw(rng)."""
    from benchmarks.torch_enumeration import torch_draws_from

    def draw(rng):
        with torch_draws_from(rng):
            return function()

    return draw


# ---- Packages ----


def transformers():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    from transformers import logging as hf_logging
    from transformers.generation import utils

    hf_logging.set_verbosity_error()

    names = inspect.signature(utils._speculative_sampling).parameters
    # arguments that older releases require
    older = {"is_done_candidate": False, "last_assistant_token_is_eos": False, "max_matches": 99}

    def verifier(**given):
        given |= {name: value for name, value in older.items() if name in names}

        def verify(drafted, p, q, rng):
            ids, p, q = torch.tensor([[0, *drafted]]), *(torch.tensor(rows)[None].log() for rows in (p, q))
            function = functools.partial(utils._speculative_sampling, ids, p, len(drafted), q, **given)
            return np.array(drawing(function)(rng)[0][0])

        return with_rule(unless_empty(verify))

    yield "_speculative_sampling", verifier(), plain
    if "assistant_ensemble_weight" in names:
        option = {"assistant_ensemble_weight": 0.9}
        yield f"_speculative_sampling, {options(option)}", verifier(**option), plain

    def network(config_class, model_class, seed, **sizes):
        torch.manual_seed(seed)
        config = config_class(
            vocab_size=3, initializer_range=0.3, bos_token_id=None, eos_token_id=None, pad_token_id=0,
            attn_implementation="eager", **sizes,
        )  # fmt: skip
        return model_class(config).eval()

    gpt2 = functools.partial(network, GPT2Config, GPT2LMHeadModel, n_positions=32, n_embd=8, n_head=2)
    large, small, ids = gpt2(seed=0, n_layer=2), gpt2(seed=1, n_layer=1), torch.tensor([[0, 1, 0, 1]])
    fixed = dict(num_assistant_tokens=K, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0)

    def generate(settings, assistance, model=large):
        given, own = {"top_k": 0} | settings | assistance, {}
        if "assistant_model" in assistance:  # generate reads these settings from the draft
            own = {name: given.pop(name) for name in fixed}

        @torch.no_grad()
        def run():
            before = [vars(net.generation_config).copy() for net in (model, small)]
            vars(small.generation_config).update(own)
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=N, pad_token_id=0, **given
            )
            for net, config in zip((model, small), before, strict=True):  # generate itself changes some settings
                vars(net.generation_config).clear()
                vars(net.generation_config).update(config)
            return out[0, ids.shape[1] :]

        return drawing(run)

    with_draft, eos = {"assistant_model": small} | fixed, {"eos_token_id": 2}
    for settings in {}, {"temperature": 0.5, "top_k": 2, "top_p": 0.9}, {"repetition_penalty": 1.5}, eos:
        name = f"generate, fixed K = {K}" + f", {options(settings)}" * bool(settings)
        yield name, generate(settings, with_draft), generate(settings, {})
    for given in (
        {"num_assistant_tokens": 1, "num_assistant_tokens_schedule": "heuristic"},
        {"assistant_confidence_threshold": 0.4},
        {"assistant_ensemble_weight": 0.9},
    ):
        if all(hasattr(small.generation_config, name) for name in given):  # older releases lack some
            yield f"generate, {options(given)}", generate({}, with_draft | given), generate({}, {})
    lookup = {"prompt_lookup_num_tokens": K}  # some releases fail without an eos
    yield f"generate, {options(lookup | eos)}", generate(eos, lookup), generate(eos, {})
    if hasattr(large.generation_config, "assistant_early_exit"):
        sizes = dict(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2)
        llama = network(LlamaConfig, LlamaForCausalLM, 0, **sizes)
        early = {"assistant_early_exit": 1}
        yield f"generate, {options(early)}, a Llama", generate({}, early | fixed, llama), generate({}, {}, llama)
        yield f"generate, {options(early)}, a GPT-2", generate({}, early | fixed), generate({}, {})


def sequential_speculative_decoding():
    import torch
    from seqspecdecod.capped_hsd import capped_hsd_step
    from seqspecdecod.naive_hsd import naive_hsd_step
    from seqspecdecod.standard_sd import standard_speculative_step

    for step in standard_speculative_step, naive_hsd_step, capped_hsd_step:

        def one_round(ids, rng, step=step):
            args = table_network(P), table_network(Q), torch.tensor([ids]), K, 1.0, 1.0
            return drawing(functools.partial(step, *args))(rng)[0][0, len(ids) :].tolist()

        yield f"{step.__name__}, K = {K}", completed(one_round), plain


def mlx_lm():
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm.generate import speculative_generate_step
    from mlx_lm.models.cache import KVCache

    class Network(nn.Module):
        def __init__(self, rows):
            super().__init__()
            self.rows, self.layers = mx.array(rows).astype(mx.float32), [None]

        def __call__(self, ids, cache=None):
            empty = mx.zeros((1, 1, ids.shape[1], 4))
            for layer in cache or []:
                layer.update_and_fetch(empty, empty)
            return mx.log(self.rows[ids])

        def make_cache(self):
            return [KVCache()]

    def decode(rng, k=K, n=N):
        def sampler(logprobs):
            rows = np.exp(np.array(logprobs, dtype=np.float64))
            return mx.array([rng.choice(3, p=row / row.sum()) for row in rows], mx.uint32)

        steps = speculative_generate_step(
            mx.array([1, 0]), Network(Q), Network(P), num_draft_tokens=k, max_tokens=n, sampler=sampler
        )
        return [int(token) for token, *_ in steps]

    for k, n in (1, 3), (2, 2):  # few tokens, because each of the k + 1 draws of a round multiplies the number of paths
        setting = f"speculative_generate_step, num_draft_tokens = {k}, max_tokens = {n}"
        yield setting, functools.partial(decode, k=k, n=n), functools.partial(plain, n=n)


PACKAGES = {
    "transformers": transformers,
    "sequential-speculative-decoding": sequential_speculative_decoding,
    "mlx-lm": mlx_lm,
}


# ---- Clones ----


def imported(path, name, unneeded=()):
    """The module from the folder path. It imports the unneeded ones too, but decoding goes without them."""
    for known in (name, "sampling", "utils"):  # this project has modules of these two names
        sys.modules.pop(known, None)
    sys.modules.update({other: mock.MagicMock() for other in unneeded})
    sys.path[:] = [str(path), *(folder for folder in sys.path if folder != ROOT)]
    return importlib.import_module(name)


def python_of(path):
    """The Python code blocks of a page in Markdown, or the code cells of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def executed(code, **names):
    """The names that the code defines."""
    exec(compile(code, "<code>", "exec"), names)
    return names


def gpt_fast(path):
    import torch

    module = imported(path, "generate", unneeded=("model", "tokenizer"))

    class Network:
        max_seq_length = 128  # later commits read it to make a mask

        def __init__(self, rows):
            self.logits = torch.tensor(rows).log()

        def __call__(self, *args):  # (x, input_pos), or (mask, x, input_pos) in later commits
            return self.logits[args[-2].long()]

    for temperature, top_k in (1.0, None), (0.5, 2):
        sampling = dict(temperature=temperature, top_k=top_k)

        def one_round(ids, rng, sampling=sampling):
            args = Network(Q), Network(P), torch.tensor(ids[-1]), len(ids) - 1, K
            return drawing(functools.partial(module.speculative_decode, *args, **sampling))(rng).tolist()

        def own(rng, sampling=sampling):
            return plain(rng, module.logits_to_probs(torch.tensor(Q).log(), **sampling).numpy())

        yield f"speculative_decode, speculate_k = {K}, {options(sampling)}", completed(one_round), own


def hsd_rules(path):
    """The functions of simulation.py, {name: verify}. The rest of that file draws figures, so it is not imported."""
    import torch

    functions = [node for node in ast.parse((path / "simulation.py").read_text()).body if hasattr(node, "args")]
    names = executed(ast.Module(functions, []), torch=torch, F=torch.nn.functional, np=np)

    def rule(name):
        def verify(drafted, p, q, rng):
            args = torch.tensor([list(drafted)]), torch.tensor(p)[None], len(drafted), torch.tensor(q)[None]
            return drawing(functools.partial(names[name], *args))(rng)[0][0].numpy()

        return unless_empty(verify)

    return {name: rule(name) for name in ("HSD", "blockwise", "tokenwise")}


def hsd(path):
    for name, verify in hsd_rules(path).items():
        yield f"{name} of simulation.py, K = {K}", with_rule(verify), plain


def eagle(path):
    import torch

    names = [f"eagle.model.modeling_{name}_kv" for name in ("llama", "mixtral", "qwen2", "qwen3")]
    module = imported(path, "eagle.model.ea_model", unneeded=names)
    draft, target = torch.tensor(P).log(), torch.tensor(Q).log()

    class Draft:  # its hidden states are logits
        topK_genrate = module.Model.topK_genrate  # (sic)
        top_k, depth, total_tokens = 2, 1, 4  # of the 2 + 4 candidates, two are left out
        config = types.SimpleNamespace(vocab_size=3, draft_vocab_size=3)
        embed_tokens = types.SimpleNamespace(weight=draft)
        tree_mask_init, position_ids = torch.eye(top_k)[None, None], torch.zeros(top_k)
        lm_head = norm = staticmethod(lambda hidden: hidden)
        logsoftmax = staticmethod(torch.nn.LogSoftmax(-1))
        reset = reset_kv = lambda self: None

        def __call__(self, hidden_states, input_ids, **options):
            return draft[input_ids], None

    class Model:
        use_eagle3, tokenizer = False, types.SimpleNamespace(eos_token_id=None)
        past_key_values, past_key_values_data, current_length_data = None, [torch.zeros(1, 99, 1)], torch.zeros(1)

        def __init__(self):
            self.ea_layer, self.base_model = Draft(), mock.MagicMock()

        def __call__(self, ids, **options):
            return None, target[ids], target[ids]

    for sampling in dict(temperature=1.0), dict(temperature=0.5, top_p=0.8):

        def run(sampling=sampling):  # the first token comes before the first round, so there is one more
            text = module.EaModel.eagenerate(Model(), torch.tensor([[0]]), max_new_tokens=N, max_length=99, **sampling)
            return text[0, 1 : 2 + N]

        rows = module.prepare_logits_processor(**sampling)(None, target).softmax(-1).numpy()
        own = functools.partial(plain, rows=rows, n=N + 1)
        yield f"eagenerate, tree of top-2 children, {options(sampling)}", drawing(run), own


def deepspec(path):
    """The whole loop, with the drafts of DSpark's Markov head."""
    import torch

    loop = imported(path, "deepspec.eval.base_evaluator")
    from deepspec.eval.dspark.draft_ops import build_dspark_proposal
    from deepspec.modeling.dspark.markov_head import VanillaMarkov

    head = VanillaMarkov(vocab_size=3, markov_rank=1)
    head.compute_step_bias = lambda token_ids, hidden_states: torch.tensor(P).log()[token_ids]

    class Draft:
        confidence_head = True
        compute_logits = staticmethod(torch.zeros_like)
        sample_draft_tokens = staticmethod(head.sample_block_tokens)

        def predict_confidence_step(self, hidden, prev_token_ids):  # unsure after token 1
            return torch.tensor([1.0, -1.0, 1.0])[prev_token_ids][..., None]

    def proposal(ids, k, threshold):
        fixed = dict(block_hidden=torch.zeros(1, k, 3), block_size=k, temperature=1.0)
        return build_dspark_proposal(Draft(), draft_input_ids=ids, confidence_threshold=threshold, **fixed)

    def decode(k, threshold, eos):
        return loop.generate_decoding_sample(
            input_ids=torch.tensor([[0]]), max_new_tokens=N, stop_token_ids=eos and [eos], init_context=mock.Mock(),
            propose=lambda output_ids, start, **context: proposal(output_ids[:, [start]], k, threshold),
            update=mock.Mock(), target_model=table_network(Q), max_proposal_tokens=k, temperature=1.0,
        ).output_ids[0, 1:]  # fmt: skip

    for k, threshold, eos in (2, 0.5, None), (2, 0.0, 2):
        name = f"generate_decoding_sample, block_size = {k}, confidence_threshold = {threshold}"
        fast = drawing(functools.partial(decode, k, threshold, eos))
        yield name + f", stop token {eos}" * (eos is not None), fast, functools.partial(plain, eos=eos)


def dflash(path):
    import torch

    module = imported(path, "dflash.model")
    target = table_network(Q)
    target.model = types.SimpleNamespace(embed_tokens=lambda ids: ids)
    target.lm_head = lambda hidden: hidden

    def draft(noise_embedding, **_):  # sees the last token of the text in all places
        return torch.tensor(P).log()[noise_embedding[:, :1].expand(-1, 1 + K)]

    draft.target_layer_ids, draft.mask_token_id = [0], 0
    for k, temperature in (1, 0.5), (2, 1.0):
        args = draft, target, torch.tensor([[0]]), N, None, temperature
        run = functools.partial(module.dflash_generate, *args, block_size=1 + k)
        own = functools.partial(plain, rows=tempered(Q, temperature))
        name = f"dflash_generate, block_size = {1 + k}, temperature = {temperature}"
        yield name, drawing(lambda run=run: run()[0, 1:]), own


def feifeibear(path):
    """These functions raise an error if they draw token 0, so each token is one more here."""
    import torch

    module = imported(path, "sampling.speculative_sampling")

    def network(rows):
        table = table_network(np.pad(rows, ((1, 0), (1, 0))))

        def forward(ids, past_key_values=None, use_cache=False):
            n = ids.shape[1] + (past_key_values[0][0].shape[2] if past_key_values else 0)
            return types.SimpleNamespace(logits=table(ids).logits, past_key_values=[[torch.zeros(1, 1, n, 1)] * 2])

        forward.device = table.device
        return forward

    for function in module.speculative_sampling, module.speculative_sampling_v2:
        for gamma, n, seed in (2, 2, {}), (2, 3, {"random_seed": 1}):
            args = torch.tensor([[1]]), network(P), network(Q), n, gamma
            run = functools.partial(function, *args, **seed)
            name = f"{function.__name__}, {options({'gamma': gamma, 'max_len': n} | seed)}"
            fast = drawing(lambda run=run, n=n: run()[0, 1 : 1 + n] - 1)
            yield name, fast, lambda rng, n=n: plain(rng)[:n]


def romsto(path):
    import torch

    speculative_generate = imported(path, "sampling", unneeded=["termcolor"]).speculative_generate
    from ngram_assisted import OneLevelNGramStorage, ngram_assisted_speculative_generate

    processors = importlib.import_module("utils.logits_processor")
    warm, no_eos = processors.MultinomialProcessor(1.0), {"eos_tokens_id": 9, "first_target": False}
    with_eos = {"eos_tokens_id": 2, "first_target": True}
    fixed = {"gamma": K, "max_gen_len": N}
    for processor, more in (
        (warm, no_eos), (processors.TopKNucleusProcessor(1.0, 2, 0.8), no_eos), (warm, with_eos),
        (warm, no_eos | {"skip_sample_adjustment": True}),
    ):  # fmt: skip
        args, given = ([0], table_network(P), table_network(Q)), fixed | more | {"logits_processor": processor}
        fast = drawing(lambda args=args, given=given: speculative_generate(*args, **given)[0])
        rows = processor(torch.tensor(Q).log()).numpy()
        name = f"speculative_generate, gamma = {K}, {type(processor).__name__}, {options(more)}"
        yield name, fast, functools.partial(plain, rows=rows, eos=more["eos_tokens_id"])
    for more in no_eos, with_eos:

        def run(more=more):
            args = [0, 1, 0, 1, 0], OneLevelNGramStorage(2, 3), table_network(Q)
            return ngram_assisted_speculative_generate(*args, logits_processor=warm, **fixed, **more)[0]

        own = functools.partial(plain, eos=more["eos_tokens_id"])
        yield f"ngram_assisted_speculative_generate, n = 2, gamma = {K}, {options(more)}", drawing(run), own


def lucidrains(path):
    """Its Gumbel noise is replaced by torch.multinomial."""
    import torch

    with_draft = imported(path, "speculative_decoding.speculative_decoding")
    with_prophet = imported(path, "speculative_decoding.speculative_decoding_with_prophet")

    def gumbel_sample(logits, temperature, dim):
        return torch.multinomial((logits / temperature).softmax(-1), 1)[..., 0]

    with_draft.gumbel_sample = with_prophet.gumbel_sample = gumbel_sample

    def network(rows):
        def forward(ids, return_early_exit_only=False, **_):
            kv = torch.zeros(len(ids), 1, ids.shape[1], 1)
            return table_network(P if return_early_exit_only else rows)(ids).logits, with_draft.Cache(kv, kv[:, 0])

        return forward

    both = types.SimpleNamespace(
        model=network(Q), prophet=network(P), to_prophet_start_token=lambda x: x, num_leading_start_tokens=1
    )
    for function, *networks in (
        (with_draft.speculative_decoding, network(Q), network(P)),
        (with_draft.speculative_decoding_with_same_model, network(Q)),
        (with_prophet.speculative_decoding_with_prophet_model, both),
    ):
        n = N + (networks == [both])  # there the first token comes before the first round
        args = *networks, torch.tensor([[0]]), 1 + n, K
        run = functools.partial(function, *args, filter_thres=0.0)
        yield f"{function.__name__}, gamma = {K}", drawing(lambda run=run: run()[0]), functools.partial(plain, n=n)

    def decoder(seed, depth):
        torch.manual_seed(seed)
        return with_draft.Decoder(num_tokens=3, dim=8, depth=depth, heads=1, dim_head=8).eval()

    large, small = decoder(seed=0, depth=2), decoder(seed=1, depth=1)
    for firsts in [0], [0, 1]:
        prompts = [torch.tensor([[first]]) for first in firsts]

        def run(prompts=prompts):
            return with_draft.speculative_decoding(large, small, torch.cat(prompts), N, 1, filter_thres=0.0)[0]

        def own(prompts=prompts):
            return torch.cat([with_draft.base_decoding(large, prompt, N, filter_thres=0.0) for prompt in prompts])

        name = f"speculative_decoding of two small Decoders, gamma = 1, batch = {len(firsts)}"
        yield name, drawing(run), drawing(own)


def toyllm(path):
    import torch

    unneeded = "tiktoken", "jaxtyping", "typeguard", "toyllm.sps.models"
    module = imported(path, "toyllm.sps.generate", unneeded)

    def network(rows):
        inference = lambda ids, config: torch.tensor(rows)[ids]  # noqa: E731
        return types.SimpleNamespace(inference=inference, device=lambda: torch.device("cpu"))

    def decode(rng):
        tokenizer = types.SimpleNamespace(encode=lambda prompt: [0], decode=lambda ids: ids[1 : 1 + N])
        generator = module.SpsTextGenerator(tokenizer, network(Q), network(P), K)
        generator.rng = rng
        return drawing(lambda: generator.generate("", module.GenerationConfig(N)))(rng)

    yield f"SpsTextGenerator, lookahead = {K}", decode, plain


def leetgpu(path):
    """Its output is filled with zeros, so each token is one more here."""
    import torch

    folder = path / "challenges/medium/87_speculative_decoding_verification"
    sys.path.insert(0, str(path / "challenges"))
    module = imported(folder, "challenge")
    module.float = lambda number: number  # a stand-in for a random number can't become a float

    def verify(drafted, p, q, rng):
        p, q = (torch.tensor(np.pad(rows, ((0, 0), (1, 0)))[None], dtype=torch.float32) for rows in (p, q))
        k, out = len(drafted), torch.zeros(1, 1 + len(drafted), dtype=torch.int32)

        def run():
            uniform = torch.rand(1, k + 1)
            uniform.dtype = torch.float32
            tokens = torch.tensor([drafted + 1], dtype=torch.int32)
            module.Challenge.reference_impl(None, tokens, p, q[:, :k], uniform, out, 1, k, 4)
            return out[out > 0] - 1

        return drawing(run)(rng).numpy()

    yield f"reference_impl of challenge 87, T = {K}", with_rule(unless_empty(verify)), plain


def torchcode(path):
    import torch

    (code,) = (code for code in python_of(path / "solutions/34_speculative_decoding_solution.ipynb") if "# ✅" in code)
    solution = executed(code, torch=torch)["speculative_decode"]

    def verify(drafted, p, q, rng):
        return drawing(functools.partial(solution, torch.tensor(q), torch.tensor(p), torch.tensor(drafted)))(rng)

    yield f"solution of task 34, K = {K}", with_rule(unless_empty(verify)), plain


def from_scratch(path):
    """Some of these know one row only, so they get the same one after each token."""
    phases = path / "phases"
    lesson = {
        "7/16": phases / "07-transformers-deep-dive/16-speculative-decoding",
        "10/15": phases / "10-llms-from-scratch/15-speculative-decoding-eagle3",
        "10/25": phases / "10-llms-from-scratch/25-speculative-decoding",
        "19/14": phases / "19-capstone-projects/14-speculative-decoding-server",
    }
    code = {number: imported(folder / "code", "main") for number, folder in lesson.items()}
    same, one = functools.partial(plain, rows=Q[[0, 0, 0]]), (Q[0], P[0])

    step = code["7/16"].spec_step_one_token
    yield "lesson 7/16, code", completed(lambda ids, rng: step(Q[ids[-1]], P[ids[-1]], rng)[:1]), plain

    spec_step, cache = code["10/15"].spec_step, code["10/15"].KVBuffer
    one_round = lambda ids, rng: spec_step(*map(list, one), K, cache(), rng)[0]  # noqa: E731
    yield f"lesson 10/15, code, one row, N = {K}", completed(one_round), same

    one_round = lambda ids, rng: code["10/25"].speculative_step(*one, K, rng)  # noqa: E731
    yield f"lesson 10/25, code, one row, K = {K}", completed(one_round), same

    (block,) = (block for block in python_of(lesson["10/25"] / "docs/en.md") if "def speculative_step" in block)

    def page_step(ids, rng):
        names = dict(
            np=np, softmax=lambda logits: np.exp(logits), draft_state_init=lambda: ids,
            draft_step=lambda state, token: [*state, token],
            target_forward_batched=lambda model, drafted, temperature: Q[[ids[-1], *drafted]],
        )  # fmt: skip
        step = executed(block, **names)["speculative_step"]
        return drawing(lambda: step(None, lambda state: np.log(P[state[-1]]), K))(rng)

    yield f"lesson 10/25, page, K = {K}", completed(page_step), plain

    def verify(drafted, p, q, rng):
        target = code["19/14"].TargetModel()
        target.distribution = lambda place: q[place].tolist()
        accepted, token = target.verify(list(drafted), 0, rng)
        return np.array([*accepted, token])

    yield f"lesson 19/14, code, K = {K}", with_rule(verify), plain


def shreyansh(path):
    import torch

    module = imported(path, "common.verification")

    def verify(drafted, p, q, rng):
        network = lambda ids: types.SimpleNamespace(logits=torch.tensor(q)[None].log())  # noqa: E731
        args = network, [0], drafted.tolist(), torch.tensor(p).reshape(-1, 3), "a generator"
        return drawing(lambda: module.probabilistic_verify(*args).emitted_ids)(rng)

    yield f"probabilistic_verify, K = {K}", with_rule(verify), plain


def jaymody(path):
    module = imported(path, "main", unneeded=("gpt2", "utils", "tqdm"))
    run = functools.partial(module.speculative_sampling, [0], lambda ids: P[ids], lambda ids: Q[ids], N, K)
    yield f"speculative_sampling, K = {K}", drawing(lambda: run()[1 : 1 + N]), plain


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
    "ai-glimpse/toyllm": ("1a3c832", toyllm),
    "duoan/TorchCode": ("8a49ba1", torchcode),
    "AlphaGPU/leetgpu-challenges": ("5a5c5d8", leetgpu),
    "rohitg00/ai-engineering-from-scratch": ("6b10711", from_scratch),
    "shreyansh26/Speculative-Decoding": ("76335be", shreyansh),
}
