"""The exact distance between the output of other people's speculative decoding and the target's own output.

    pip install -r benchmarks/requirements-audit.txt
    python -m benchmarks.audit --out docs/audit.json
    python -m benchmarks.audit --table docs/audit.json

docs/audit.md says how it works, and has all commands.
Functions for one round get the rows of lab/gallery.py.
"""

import argparse
import ast
import functools
import importlib.metadata
import importlib.util
import inspect
import json
import os
import sys
import types
import warnings
from pathlib import Path

import numpy as np

from benchmarks import tables
from enumeration import output_distribution, total_variation
from lab.gallery import P, Q
from speculative import autoregressive_sampling, propose, speculative_sampling

N, K = 3, 2
ROUNDING = 1e-6  # smaller distances come from the rounding of float32
CHECKS = {}  # {package: function that yields (setting, speculative decoding, plain sampling), the latter two as f(rng)}


def check(package):
    return lambda function: CHECKS.setdefault(package, function)


def table_model(rows):
    """A model whose row depends on the last token only."""
    return lambda ids, n_rows=1: rows[np.asarray(ids)[-n_rows:]]


def plain(rng, rows=Q):
    return autoregressive_sampling([0], table_model(rows), N, rng)[1:]


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


def drawing(function):
    """Turn function(), which draws from PyTorch, into draw(rng)."""
    from benchmarks.torch_enumeration import torch_draws_from

    def draw(rng):
        with torch_draws_from(rng):
            return function()

    return draw


# ---- Hugging Face's transformers ----


@check("transformers")
def transformers():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    from transformers import logging as hf_logging
    from transformers.generation import utils

    hf_logging.set_verbosity_error()

    names = inspect.signature(utils._speculative_sampling).parameters
    # arguments that older releases require
    older = {"is_done_candidate": False, "last_assistant_token_is_eos": False, "max_matches": 99}

    def verifier(**options):
        options |= {name: value for name, value in older.items() if name in names}

        def verify(drafted, p, q, rng):
            if len(drafted) == 0:
                return [rng.choice(3, p=q[0])]
            ids, p, q = torch.tensor([[0, *drafted]]), *(torch.tensor(rows)[None].log() for rows in (p, q))
            function = functools.partial(utils._speculative_sampling, ids, p, len(drafted), q, **options)
            return np.array(drawing(function)(rng)[0][0])

        return with_rule(verify)

    yield "_speculative_sampling", verifier(), plain
    for weight in (0.9, 0.5, 0.0) if "assistant_ensemble_weight" in names else ():
        option = {"assistant_ensemble_weight": weight}
        yield f"_speculative_sampling, assistant_ensemble_weight = {weight}", verifier(**option), plain

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
        options, own = {"top_k": 0} | settings | assistance, {}
        if "assistant_model" in assistance:  # generate reads these settings from the draft
            own = {name: options.pop(name) for name in fixed}

        @torch.no_grad()
        def run():
            before = [vars(net.generation_config).copy() for net in (model, small)]
            vars(small.generation_config).update(own)
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=N, pad_token_id=0, **options
            )
            for net, config in zip((model, small), before, strict=True):  # generate itself changes some settings
                vars(net.generation_config).clear()
                vars(net.generation_config).update(config)
            return out[0, ids.shape[1] :]

        return drawing(run)

    with_draft, eos, warm = {"assistant_model": small} | fixed, {"eos_token_id": 2}, {"temperature": 0.5, "top_k": 2}
    for settings in (
        {}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.7}, warm | {"top_p": 0.9}, {"repetition_penalty": 1.5}, eos
    ):  # fmt: skip
        name = ", ".join([f"generate, fixed K = {K}", *(f"{key} = {value}" for key, value in settings.items())])
        yield name, generate(settings, with_draft), generate(settings, {})
    heuristic, transient = (
        {"num_assistant_tokens": 1, "num_assistant_tokens_schedule": name}
        for name in ("heuristic", "heuristic_transient")
    )
    for name, options in {
        "heuristic schedule": heuristic,
        "heuristic_transient schedule": transient,
        "assistant_confidence_threshold = 0.4": {"assistant_confidence_threshold": 0.4},
        "assistant_ensemble_weight = 0.9": {"assistant_ensemble_weight": 0.9},
        "assistant_ensemble_weight = 0.5": {"assistant_ensemble_weight": 0.5},
    }.items():
        if all(hasattr(small.generation_config, option) for option in options):  # older releases lack some
            yield f"generate, {name}", generate({}, with_draft | options), generate({}, {})
    lookup = {"prompt_lookup_num_tokens": K}  # some releases fail without an eos
    yield f"generate, prompt_lookup_num_tokens = {K}", generate(eos, lookup), generate(eos, {})
    name = f"generate, prompt_lookup_num_tokens = {K}, temperature = 0.5, top_k = 2"
    yield name, generate(eos | warm, lookup), generate(eos | warm, {})
    if hasattr(large.generation_config, "assistant_early_exit"):
        sizes = dict(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2)
        llama = network(LlamaConfig, LlamaForCausalLM, 0, **sizes)
        early = {"assistant_early_exit": 1} | fixed
        yield "generate, a Llama with assistant_early_exit = 1", generate({}, early, llama), generate({}, {}, llama)
        yield "generate, a GPT-2 with assistant_early_exit = 1", generate({}, early), generate({}, {})


# ---- Packages with a function for one round ----


def table_network(rows):
    """A network in PyTorch: ids [1, n] -> logits [1, n, 3]."""
    import torch

    logits = torch.tensor(rows).log()
    return lambda ids, *args, **options: types.SimpleNamespace(logits=logits[ids.long()])


@check("sequential-speculative-decoding")
def sequential_speculative_decoding():
    import torch
    from seqspecdecod.capped_hsd import capped_hsd_step
    from seqspecdecod.naive_hsd import naive_hsd_step
    from seqspecdecod.standard_sd import standard_speculative_step

    for step in (standard_speculative_step, naive_hsd_step, capped_hsd_step):
        for temperature in (1.0, 0.5):
            rows = Q ** (1 / temperature) / (Q ** (1 / temperature)).sum(axis=-1, keepdims=True)

            def one_round(ids, rng, step=step, temperature=temperature):
                args = table_network(P), table_network(Q), torch.tensor([ids]), K, temperature, temperature
                return drawing(functools.partial(step, *args))(rng)[0][0, len(ids) :].tolist()

            own = functools.partial(plain, rows=rows)
            yield f"{step.__name__}, K = {K}, temperature = {temperature}", completed(one_round), own


@check("mlx-lm")
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
        yield setting, functools.partial(decode, k=k, n=n), lambda rng, n=n: plain(rng)[:n]


def gpt_fast(path):
    import torch

    for name in ("model", "tokenizer"):  # generate.py imports these two, but decoding does not need them
        stub = types.ModuleType(name)
        stub.Transformer = stub.get_tokenizer = None
        sys.modules[name] = stub
    spec = importlib.util.spec_from_file_location("gpt_fast_generate", path / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class Network:
        max_seq_length = 128  # later commits read it to make a mask

        def __init__(self, rows):
            self.logits = torch.tensor(rows).log()

        def __call__(self, *args):  # (x, input_pos), or (mask, x, input_pos) in later commits
            return self.logits[args[-2].long()]

    for temperature in (1.0, 0.5):
        for top_k in (None, 2):
            sampling = dict(temperature=temperature, top_k=top_k)

            def one_round(ids, rng, sampling=sampling):
                args = Network(Q), Network(P), torch.tensor(ids[-1]), len(ids) - 1, K
                return drawing(functools.partial(module.speculative_decode, *args, **sampling))(rng).tolist()

            def own(rng, sampling=sampling):
                return plain(rng, module.logits_to_probs(torch.tensor(Q).log(), **sampling).numpy())

            setting = f"speculative_decode, speculate_k = {K}, temperature = {temperature}"
            yield setting + (f", top_k = {top_k}" if top_k else ""), completed(one_round), own


def hsd_rules(path):
    """The functions of simulation.py, {name: verify}. The rest of that file draws figures, so it is not imported."""
    import torch

    names = {"torch": torch, "F": torch.nn.functional, "np": np}
    functions = [node for node in ast.parse((path / "simulation.py").read_text()).body if hasattr(node, "args")]
    exec(compile(ast.Module(functions, []), "simulation.py", "exec"), names)

    def rule(name):
        def verify(drafted, p, q, rng):
            if len(drafted) == 0:
                return [rng.choice(len(q[0]), p=q[0])]
            args = torch.tensor([list(drafted)]), torch.tensor(p)[None], len(drafted), torch.tensor(q)[None]
            return drawing(functools.partial(names[name], *args))(rng)[0][0].numpy()

        return verify

    return {name: rule(name) for name in ("HSD", "blockwise", "tokenwise")}


def hsd(path):
    for name, verify in hsd_rules(path).items():
        yield f"{name} of simulation.py, K = {K}", with_rule(verify), plain


CLONES = {"gpt-fast": gpt_fast, "Hierarchical-Speculative-Decoding": hsd}


# ---- The audit ----


def audit(package, version, settings):
    """Yield one result for each setting: a dict of numbers and strings."""
    for setting, fast, slow in settings:
        n_paths = 0

        def counted(rng, fast=fast):
            nonlocal n_paths
            n_paths += 1
            return fast(rng)

        try:
            # which runs the first path twice
            found, wanted = output_distribution(counted, max_paths=100_000), output_distribution(slow)
            row = {"paths": n_paths - 1, "distance": total_variation(found, wanted)}
            if hasattr(fast, "one_round"):
                row["tokens_per_round"] = sum(len(out) * p for out, p in output_distribution(fast.one_round).items())
        except Exception as error:  # an error of the library is a result, too
            row = {"error": f"{type(error).__name__}: {error}".split("\n")[0][:200]}
        row = {"package": package, "version": version, "setting": setting, **row}
        print(json.dumps(row), flush=True)
        yield row


def table(rows):
    """The results in Markdown."""
    lines = []
    for row in rows:
        paths, distance = "", row.get("error")
        if "distance" in row:
            paths = f"{row['paths']:,}"
            exact = row["distance"] < ROUNDING
            distance = f"{row['distance']:.0e} (rounding)" if exact else f"**{row['distance']:.4f}**"
        tokens = f"{row['tokens_per_round']:.4f}" if "tokens_per_round" in row else ""
        lines.append([row["package"], row["version"], row["setting"], paths, distance, tokens])
    return tables.table(["package", "version", "setting", "paths", "distance", "tokens per round"], lines, n_left=3)


def merged(old, new):
    """Old and new results, by package. A new one replaces the old one of the same package, version and setting."""
    rows = {(row["package"], row["version"], row["setting"]): row for row in [*old, *new]}
    packages = [*CHECKS, *CLONES]
    return sorted(rows.values(), key=lambda row: packages.index(row["package"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CHECKS, help="audit one package")
    clone = dict(nargs=3, metavar=("NAME", "DIR", "COMMIT"))
    parser.add_argument("--clone", **clone, help=f"audit a clone, and nothing else; NAME is {' or '.join(CLONES)}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="add the results to a JSON file")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of such a file and do nothing else")
    args = parser.parse_args()
    if args.table:
        return print(table(json.loads(args.table.read_text(encoding="utf-8"))))
    warnings.filterwarnings("ignore")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # because threads only slow down tensors of 3 tokens

    audits = []
    for package, settings in CHECKS.items():
        if args.only in (None, package) and not args.clone:
            try:
                audits.append((package, importlib.metadata.version(package), settings()))
            except importlib.metadata.PackageNotFoundError:
                print(f"{package} is not installed; pip install -r benchmarks/requirements-audit.txt", file=sys.stderr)
    if args.clone:
        name, path, commit = args.clone
        audits.append((name, commit, CLONES[name](Path(path))))
    rows = [row for one in audits for row in audit(*one)]
    if args.out:
        old = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else []
        args.out.write_text(json.dumps(merged(old, rows), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
