"""What papers published, as it is: one function per repository, which yields its settings.

Only the models are replaced, and what draws numbers. Where a repository decodes on GPUs
alone, its round or its check runs without the rest.
"""

import inspect
import random
import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Optional
from unittest import mock

import numpy as np

from lab.gallery import GALLERY
from sampling import logits_to_probs
from studies.audit.harness import (
    PROMPT,
    Cache,
    P,
    Q,
    Rounds,
    Setting,
    by_rule,
    definitions,
    imported,
    last_rows,
    logits,
    named,
    plain,
)
from studies.audit.projects import AtPlaces

try:
    import torch
    import torch.nn.functional as F
except ImportError:  # a test wants to read the names only
    torch = None

K, N = 1, 2  # enough for replacements, for a bonus, and for what comes after them
HALF = 0.5  # a temperature
COLDER = logits_to_probs(np.log(Q), HALF)
short = partial(by_rule, k=K, n=N)
by_argmax = GALLERY["greedy-draft"].propose


# ---- What several of them need ----


def row_after(rows, ids):
    """The logits after a text."""
    return last_rows(logits(rows), torch.tensor([ids]), 1)[0, 0]


def rows_of_tree(rows, ids, children):
    """The logits after a text, and after each of its children."""
    after = [row_after(rows, [*ids, int(child)]) for child in children]
    return torch.stack([row_after(rows, ids), *after])


def layer_of(tokens):
    """Tokens as the keys and values of a layer: [1, n] -> two of [1, 1, n, 1]"""
    keys = tokens[:, None, :, None]
    return keys, keys


def tokens_of(layer):
    keys, _ = layer
    return keys[:, 0, :, 0]


def with_text(network, ids):
    """A network `AtPlaces` that has read a text."""
    network.tokens = dict(enumerate(ids))
    return network


# ---- A model in the middle ----


class ThreeNetworks:
    """The engine of TriForce. All three networks read the target's cache."""

    def __init__(self):
        self.engine = mock.MagicMock(kv_cache=self)
        self.engine.model.device = "cpu"
        self.print_status = self.update_graph_cache = self.graph_draft_prefill = mock.Mock()
        self.reset()

    def reset(self):
        self.cache = Cache()

    @property
    def seq_len(self):
        return self.cache.get_seq_length()

    @seq_len.setter
    def seq_len(self, length):
        self.cache.crop(length)

    def inference(self, input_ids):
        return last_rows(logits(Q), self.cache.read(input_ids), input_ids.shape[1])

    def graph_draft_inference(self, input_ids, gamma_offset):
        return self.after(P, input_ids)[-1]

    def graph_verify(self, input_ids, position_ids):
        return self.after((P + Q) / 2, input_ids)

    def after(self, rows, ids):
        tokens = torch.cat([self.cache.tokens, ids], dim=1)
        return last_rows(logits(rows), tokens, ids.shape[1])[0].softmax(-1)


def triforce(path):
    """It prints each token, which is how they are read here."""
    text = []
    used = vars(definitions(path / "utils/sampling.py", torch=torch, F=F))
    used |= dict(np=np, time=time, spec_stream=lambda token, *_: text.append(int(token)))
    code = definitions(path / "utils/decoding.py", "TriForce", "Middle_Spec", **used)
    loop = inspect.unwrap(code.TriForce)  # without inference_mode, which takes long here
    loop.__globals__["Middle_Spec"] = inspect.unwrap(code.Middle_Spec)

    def decode():
        text.clear()
        tokenizer, ids = SimpleNamespace(eos_token_id=9), torch.tensor([PROMPT])
        loop(tokenizer, ThreeNetworks(), ids, K, N - 1, top_p=0.0, temperature=1.0, verbose=True)
        return text[:N]

    yield Setting(f"TriForce, gamma = {K}, (P + Q) / 2 in the middle", decode, plain(n=N))


# ---- Several guesses at one place ----


def longspec(path):
    """Its check, for a tree of two children."""
    file = path / "longspec/test/llama_glide.py"
    used = dict(torch=torch, F=F, random=random)
    code = definitions(file, "LlamaGlide", LlamaForCausalLM=object, **used).LlamaGlide
    check = inspect.unwrap(code.verify_stochastic)  # without torch.compile
    sizes = SimpleNamespace(diag_matrix=torch.eye(3)[None], range_tensor=torch.arange(3)[None])
    mask = torch.tensor([[[1, 0, 0], [1, 1, 0], [1, 0, 1]]])

    def one_round(ids):
        children = row_after(P, ids).topk(2).indices
        nodes = torch.tensor([[ids[-1], *children]])
        p = rows_of_tree(P, ids, children)[None]
        q = rows_of_tree(Q, ids, children)[None]
        tokens, n = check(sizes, nodes, mask, q, p, 1.0)
        return tokens[0, 1 : int(n)]

    yield Rounds("verify_stochastic, top-2 children, temperature = 1.0", one_round, n=N)


class InTrees:
    """A network of MCSD, which is told who sees whom. A hidden state is a sum of tokens."""

    def __init__(self, rows):
        self.model, self.table = self, logits(rows)

    def get_input_embeddings(self):
        return SimpleNamespace(weight=self.table)

    def __call__(self, input_ids, past_key_values, tree_attn_mask=None, **_):
        known = input_ids[:, :0] if past_key_values is None else tokens_of(past_key_values[0])
        tokens = torch.cat([known, input_ids], dim=1)
        n, n_new = tokens.shape[1], input_ids.shape[1]
        mask = tree_attn_mask
        if mask is None:
            mask = torch.ones(n_new, n).tril(n - n_new)
        states = mask.long() @ tokens[0]
        cache = [layer_of(tokens)]
        return SimpleNamespace(last_hidden_state=states[None, :, None], past_key_values=cache)

    def lm_head(self, sums):
        return self.table[sums[..., 0] % len(self.table)]


def mcsd(path):
    code = imported(path, "MCSD.inference.strategies")
    code.DecoderOnlyDraftOutput = code.DecoderOnlyVerificationOutput = SimpleNamespace

    def one_round(given, ids):
        strategy = code.TreeStrategy(InTrees(P), InTrees(Q), k_config=(2,), **given)
        draft = strategy.generate_draft(torch.tensor([ids]), None)
        caches = None, draft.past_key_values
        return strategy.verify(draft.sequences, *caches, draft.cand_probs).sequences[0, len(ids) :]

    for temperature in 1, 0:
        given = dict(draft_model_temp=temperature)
        name = named("TreeStrategy, k_config = (2,)", **given)
        yield Rounds(name, partial(one_round, given), n=N)


def sequoia(path):
    """Its check, for two children. torch.multinomial draws them, in place of a race of noise."""
    code = imported(path, "Tree.SpecTree", unneeded=["Engine", "Engine.Engine"])
    utils = import_module("utils")

    def one_round(ids):
        tree = code.SpecTree.__new__(code.SpecTree)
        vars(tree).update(ground_truth_len=1, temperature=1.0, dtype=torch.float32)
        tree.residual_graph, tree.Successors = utils.get_residual, [[1, 2], [], []]
        row = row_after(P, ids).float()
        children = torch.multinomial(row.softmax(-1), 2)
        tree.draft_logits = row.repeat(3, 1)
        tree.target_logits = rows_of_tree(Q, ids, children).softmax(-1).float()
        tree.tokens = torch.tensor([ids[-1], *children])
        tree.r = torch.rand(3)
        place, row = tree.accept_step(0)
        if place == -1:
            return row.multinomial(1)
        _, row = tree.accept_step(place)
        return [tree.tokens[place], row.multinomial(1)]

    yield Rounds("SpecTree.accept_step, 2 children", one_round, n=N)


class Draft:
    """The draft of Apple: a state is a sum of tokens, and its head sees two of them."""

    config = SimpleNamespace(rnn=False)

    def lm_head(self, states):
        return logits(P)[states.sum(-1).long() % len(P)]


class Embeddings:
    num_embeddings = len(P)

    def __call__(self, tokens):
        return tokens[..., None].double()


def recurrent_drafter(path):
    names = "attention", "autoregressive", "chat", "kv_cache", "modeling_llama", "rng", "stats"
    package = "recurrent_drafting"
    unneeded = [f"{package}.{name}" for name in (*names, "tree_attention")]
    code = imported(path, f"{package}.recurrent_drafting", unneeded)
    drafter = code.modeling_drafter
    Draft.beam_search_candidates = drafter.Drafter.beam_search_candidates
    Draft.compute_logits = drafter.Drafter.compute_logits

    def chosen(beams, p, q):
        n, beam = code._choose_from_candidates(beams, q, p)
        _, token = code._prepare_next_input(p, q, torch.zeros(*beams.shape, 1), beam, n)
        return [*beams[0, int(beam), 1 : int(n) + 1], token]

    def one_round(width, ids):
        state = torch.tensor([[sum(ids[:-1])]]).double()
        shape = drafter.BeamShape(width, 1 + K)
        last = torch.tensor(ids[-1:])
        beams, p = Draft().beam_search_candidates(state, last, Embeddings(), shape)
        before = torch.tensor([ids[:-1]], dtype=torch.long).expand(width, -1)
        texts = torch.cat([before, beams[0]], dim=1)
        q = last_rows(logits(Q), texts, 1 + K)
        return chosen(beams, p, q[None])

    def verify(drafted, p, q):
        beams = torch.cat([drafted[:1], drafted])[None, None]
        return chosen(beams, p.log()[None, None], q.log()[None, None])

    for width in 1, 2:
        name = f"beam_search_candidates, BeamShape({width}, {1 + K})"
        yield Rounds(name, partial(one_round, width), n=N)
    yield short("_choose_from_candidates, one drawn token", verify)


# ---- Temperature and cuts ----


def spec_bench(path):
    """Checks of EAGLE-3 and SAMD for the draft's argmax tokens, and of its sps for drawn ones."""
    used = dict(torch=torch, random=random)
    eagle = definitions(path / "model/eagle3/utils.py", "evaluate_posterior", **used)
    samd = definitions(path / "model/samd/utils.py", "eval_posterior", **used)
    sps = definitions(path / "model/sps/decoding.py", "_speculative_sampling", torch=torch)

    def colder(_, rows):
        return rows / HALF

    def of_eagle(rows, candidates):
        return eagle.evaluate_posterior(rows, candidates, colder)

    def of_samd(rows, candidates):
        config = SimpleNamespace(greedy=False, logits_processor=colder)
        best, n, row = samd.eval_posterior(rows, candidates, config)
        return best, n - 1, row[0]

    def verify(check, drafted, p, q):
        candidates = torch.cat([drafted[:1], drafted])[None]  # with the last token of the text
        _, n, row = check(q.log()[None], candidates)
        return [*drafted[: int(n)], torch.multinomial(row, 1)]

    def by_sps(drafted, p, q):
        rows = p.log()[None], len(drafted), q.log()[None]
        return sps._speculative_sampling(drafted[None], *rows, False, len(drafted))[0][0]

    trees = {"evaluate_posterior of eagle3": of_eagle, "eval_posterior of samd": of_samd}
    for name, check in trees.items():
        rule = partial(verify, check)
        rounds = short(f"{name}, K = {K}, temperature = {HALF}", rule, propose=by_argmax)
        yield rounds._replace(rows=COLDER)
    yield short(f"_speculative_sampling of sps, K = {K}", by_sps)


class LMFlowModel:
    """A text is its tokens."""

    def __init__(self, rows):
        self.table = logits(rows)

    def encode(self, text, **_):
        return torch.tensor([text])

    def decode(self, tokens):
        return tokens

    def inference(self, input_ids, **_):
        return SimpleNamespace(scores=[last_rows(self.table, input_ids, 1)[:, 0]])

    def get_backend_model(self):
        return self.all_rows

    def all_rows(self, input_ids, return_dict):
        return SimpleNamespace(logits=last_rows(self.table, input_ids, input_ids.shape[1]))


def lmflow(path):
    used = dict(torch=torch, F=F, Inferencer=object, logger=mock.Mock())
    file = path / "src/lmflow/pipeline/inferencer.py"
    kind = definitions(file, "SpeculativeInferencer", **used).SpeculativeInferencer
    inferencer = kind.__new__(kind)
    inferencer.inferencer_args = SimpleNamespace(device="cpu")

    def decode(temperature):
        options = dict(temperature=temperature, gamma=K, max_new_tokens=N)
        found = inferencer.inference(LMFlowModel(Q), LMFlowModel(P), PROMPT, **options)
        return found[len(PROMPT) :]

    for temperature in 1.0, HALF:
        rows = logits_to_probs(np.log(Q), temperature)
        name = f"SpeculativeInferencer, gamma = {K}, temperature = {temperature}"
        yield Setting(name, partial(decode, temperature), plain(rows, n=N))


class OfLitgpt(AtPlaces):
    max_seq_length = 99

    def modules(self):
        return []

    def __call__(self, idx, input_pos, **_):
        return super().__call__(idx, input_pos)


def litgpt(path):
    """A round, and the loop around it."""
    used = dict(torch=torch, F=F)
    base = definitions(path / "litgpt/generate/base.py", **used, L=None)
    for name in "multinomial_num_samples_1", "sample_top_p", "next_token":
        used[name] = getattr(base, name)
    wanted = "sample", "speculative_decoding", "generate"
    code = definitions(path / "litgpt/generate/speculative_decoding.py", *wanted, **used)

    def one_round(given, ids):
        networks = with_text(OfLitgpt(P), ids), with_text(OfLitgpt(Q), ids)
        last, place = torch.tensor(ids[-1:]), torch.tensor([len(ids) - 1])
        return code.speculative_decoding(*networks, last, place, len(ids), K, **given)

    def decode(given):
        length = len(PROMPT) + 1 + N
        networks = OfLitgpt(P), OfLitgpt(Q)
        found, _ = code.generate(*networks, torch.tensor(PROMPT), length, speculative_k=K, **given)
        return found[len(PROMPT) :][:N]

    for given in {}, dict(temperature=HALF, top_k=3), dict(top_p=0.8):
        drawn = [code.sample(row[None, None], **given) for row in logits(Q)]
        rows = np.array([row.numpy() for _, row in drawn])
        name = named(f"speculative_decoding, speculative_k = {K}", **given)
        raises = RuntimeError if "top_p" in given else ()
        yield Rounds(name, partial(one_round, given), rows, raises, N)
    given = dict(top_k=1)
    rows = logits_to_probs(np.log(Q), **given)
    name = named(f"generate, speculative_k = {K}", **given)
    yield Setting(name, partial(decode, given), plain(rows, n=N))


# ---- One guess at a time ----


def self_speculative(path):
    """With its default stops, and without top-k and top-p, which transformers no longer has."""
    used = dict(torch=torch, top_k_top_p_filtering=lambda rows, **_: rows)
    wanted = "sample", "max_fn", "self_speculative_sample"
    code = definitions(path / "decoding.py", *wanted, **used)

    class Itself:
        """The target, and its own draft within the `with` statement."""

        device, config = torch.device("cpu"), SimpleNamespace(vocab_size=len(P))
        table = logits(Q)

        def self_draft(self):
            return mock.patch.object(self, "table", logits(P))

        def __call__(self, input_ids, past_key_values, **_):
            tokens = input_ids
            if past_key_values is not None:
                tokens = torch.cat([tokens_of(past_key_values[0]), tokens], dim=1)
            rows = last_rows(self.table, tokens, input_ids.shape[1])
            return dict(logits=rows, past_key_values=[layer_of(tokens)])

    def decode(given):
        ids = torch.tensor([PROMPT])
        fixed = dict(max_step_draft=K, do_sample=True, top_p=1.0, temperature=1.0)
        found = code.self_speculative_sample(Itself(), None, ids, N, **fixed, **given)
        return found["generate_ids"][0]

    for given in {}, dict(do_sample_draft=True):
        yield Setting(named("self_speculative_sample", **given), partial(decode, given), plain(n=N))


def layerskip(path):
    """The whole loop. Of two layers, the first one has the draft's rows."""
    code = imported(path, "self_speculation.self_speculation_generator", unneeded=["colorama"])

    def read(past, layer, ids):
        """The tokens that a layer knows, after these."""
        if past is None or layer >= len(past):
            return ids
        return torch.cat([tokens_of(past[layer]), ids], dim=1)

    def result(rows, ids, *layers):
        found = last_rows(logits(rows), layers[-1], ids.shape[1])
        past = [layer_of(tokens) for tokens in layers]
        return SimpleNamespace(logits=found, past_key_values=past, exit_query_cache=None)

    def forward_early(model, ids, past, *_):
        found = result(P, ids, read(past, 0, ids))
        found.past_key_values += [] if past is None else past[1:]
        return found

    def forward_remainder(model, ids, past, *_):
        early = read(past, 0, ids[:, -1:])
        return result(Q, ids, early, read(past, 1, ids))

    code.forward_early, code.forward_remainder = forward_early, forward_remainder
    strategy = code.SelfSpeculativeGenerationStrategy()

    def decode(given):
        config = code.GenerationConfig(max_steps=N, num_speculations=1, sample=True, **given)
        model = SimpleNamespace(device="cpu")
        return strategy.generate_token_ids(model, [*PROMPT], [], config).predicted_tokens[:N]

    given = dict(temperature=HALF, top_k=0, top_p=1.0)
    name = named("SelfSpeculativeGenerationStrategy, num_speculations = 1", **given)
    yield Setting(name, partial(decode, given), plain(COLDER, n=N))


def torchchat(path):
    """A round as it is, and then with a draft loop of ours."""
    used = dict(torch=torch, logger=mock.Mock(), Optional=Optional, Dict=dict, Any=Any)
    used |= dict(SDPBackend=object, ModelType=mock.Mock())
    kind = definitions(path / "torchchat/generate.py", "LocalGenerator", **used).LocalGenerator

    class WithOurs(kind):
        def decode_n_tokens(self, model, token, place, n, need_probs, batch, **given):
            tokens, rows = [], []
            for i in range(n):
                token, row = self.decode_one_token(model, token, place + i, need_probs, **given)
                tokens.append(token)
                rows.append(row)
            return tokens, rows

    def one_round(kind, k, ids):
        networks = with_text(AtPlaces(Q), ids), with_text(AtPlaces(P), ids)
        for each in networks:
            each.config.model_type = "text"
        last, place = torch.tensor(ids[-1], dtype=torch.int), len(ids) - 1
        generator = kind.__new__(kind)
        return generator.speculative_decode(*networks, last, place, k, temperature=HALF)

    name = f"speculative_decode, temperature = {HALF}, speculate_k"
    yield Rounds(f"{name} = 8", partial(one_round, kind, 8), COLDER, TypeError)
    yield Rounds(f"{name} = {K}, our draft loop", partial(one_round, WithOurs, K), COLDER, n=N)


def shreyansh(path):
    """Its check, which no program of this repository calls."""
    code = definitions(path / "common/verification.py", torch=torch, dataclass=dataclass)

    def verify(drafted, p, q):
        rows = SimpleNamespace(logits=q.log()[None])
        return code.probabilistic_verify(lambda ids: rows, [0], drafted.tolist(), p).emitted_ids

    yield short(f"probabilistic_verify, K = {K}", verify)


def adaptive(path):
    """Its check and its replacement."""
    kind = imported(path / "src", "core.decoder.speculative", ["ahocorasick"]).SpeculativeDecoder
    decoder = kind.__new__(kind)
    decoder.temperature = 1.0

    def verify(drafted, p, q):
        accepted, place = decoder._accept_reject_gpu(drafted.tolist(), q.log(), p)
        return [*accepted, decoder._residual_sample(q.log(), p, place)]

    yield short(f"_accept_reject_gpu, _residual_sample, K = {K}", verify)


def tpu_inference(path):
    """Its check, for one-hot drafts as in its runner, with numbers from PyTorch."""
    import jax
    import jax.numpy as jnp

    layers = path / "tpu_inference/layers"
    used = dict(jax=jax, jnp=jnp, PLACEHOLDER_TOKEN_ID=-1)
    used |= vars(definitions(layers / "common/binary_search.py", **used, lax=jax.lax))
    wanted = "_apply_sampling_transforms"
    plainly = definitions(layers / "jax/sample/sampling.py", wanted, **used)
    wanted = "_compute_probs", "_get_segment_info", "_sample_recovered_tokens", "rejection_sample"
    wanted = *wanted, "_random_rejection_sample_with_segment"
    checks = definitions(layers / "jax/sample/rejection_sampler.py", *wanted, **used)

    def settings(given):
        """What both kinds of rows are made with."""
        numbers = {name: jnp.array([number]) for name, number in given.items()}
        return SimpleNamespace(top_k=jnp.array([0]), **numbers)

    def own_row(row, given):
        """What plain decoding and the bonus are drawn from."""
        rows = plainly._apply_sampling_transforms(jnp.log(row)[None], settings(given))
        return jax.nn.softmax(rows)[0]

    def one_round(drafted, rows, uniform, noise, given):
        """The tokens that are left, -1 for each other, and at the end len(P) for a bonus."""
        n = jnp.array([K])
        rows = checks._compute_probs(jnp.log(rows), n, settings(given))
        draws = dict(split=lambda key: (key, key))
        draws |= dict(uniform=lambda *_, **__: uniform, exponential=lambda *_, **__: noise)
        with mock.patch.multiple(jax.random, **draws):
            bonus = jnp.array([len(P)])
            return checks.rejection_sample(drafted, n, None, rows, bonus, True, key=0)

    own_row, one_round = jax.jit(own_row), jax.jit(one_round)

    def verify(given, drafted, p, q):
        numbers = torch.rand(K), torch.empty(K, len(P)).exponential_()
        tensors = drafted.int(), q[:-1].float(), *numbers
        *tokens, last = one_round(*(each.numpy() for each in tensors), given).tolist()
        kept = [token for token in tokens if token >= 0]
        if last < 0:
            return kept
        row = np.array(own_row(q[-1].float().numpy(), given))
        return [*kept, torch.multinomial(torch.tensor(row), 1)]

    for temperature, top_p in (1.0, 0.8), (0.6, 0.95), (HALF, 0.55):
        given = dict(temperature=temperature, top_p=top_p)
        rows = np.array([own_row(row.astype(np.float32), given) for row in Q], float)
        name = named(f"rejection_sample, K = {K}", **given)
        rounds = short(name, partial(verify, given), propose=by_argmax)
        yield rounds._replace(rows=rows)


CLONES = {
    "Infini-AI-Lab/TriForce": ("164c8c0", triforce),
    "sail-sg/LongSpec": ("15e4998", longspec),
    "NJUNLP/MCSD": ("8aadd65", mcsd),
    "Infini-AI-Lab/Sequoia": ("0ff3ff7", sequoia),
    "apple/ml-recurrent-drafter": ("bd8586b", recurrent_drafter),
    "hemingkx/Spec-Bench": ("fd2c1cd", spec_bench),
    "OptimalScale/LMFlow": ("f3597dba", lmflow),
    "Lightning-AI/litgpt": ("26857050", litgpt),
    "dilab-zju/self-speculative-decoding": ("688db8b", self_speculative),
    "facebookresearch/LayerSkip": ("f42c669", layerskip),
    "pytorch/torchchat": ("a1a7f370", torchchat),
    "shreyansh26/Speculative-Decoding": ("76335be", shreyansh),
    "Andrchest/Adaptive-speculative-decoding": ("027afa8", adaptive),
    "vllm-project/tpu-inference": ("b8692ff", tpu_inference),
}
