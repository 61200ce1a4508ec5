"""This project beside transformers: a forward pass, and whole texts with and without the draft.

    pip install -r studies/times/requirements-peers.txt
    python -m studies.times.peers models/target  # passes: a few rows after 32 cached tokens, and a prompt
    python -m studies.times.peers                # texts, with the bundled pair

Both have the same weights in float32, one thread per core, and a process of their own, and
take turns. Medians are printed. Of a prompt, both compute the last row of logits only.
"""

import argparse
import importlib.util
import os

import numpy as np

from checkpoint import UserError
from checkpoint.huggingface import openai_name
from checkpoint.read import open_model, read
from encoder import get_encoder
from lab.tables import table
from studies.times.turns import Turns
from terminal import PROMPT, report

CONTEXT, TURNS, PASSES = 32, 12, 4
N, K = 100, 4  # of the texts
PAIR = "models/target", "models/draft"
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


# ---- The engines: forward(n, n_new) -> some logits after the first n ids, and decode(ids, K) -> ids ----


def ids_for(folder):
    hparams = open_model(folder).hparams
    return np.random.default_rng(0).integers(hparams["n_vocab"], size=hparams["n_ctx"])


def our_pass(folder):
    from gpt2 import GPT2

    net, ids = GPT2(*reversed(read(folder))), ids_for(folder)

    def forward(n, n_new):
        if n_new == n:
            net.reset()
        return net(ids[:n], 1 if n_new == n else n_new)[:, :5].tolist()

    return forward


def our_loop(target, draft):
    from gpt2 import GPT2
    from sampling import as_model
    from speculative import speculative_sampling

    networks = [GPT2(*reversed(read(folder))) for folder in (target, draft)]
    target, draft = (as_model(network, temperature=0) for network in networks)

    def decode(ids, K):
        for network in networks:
            network.reset()
        return speculative_sampling(ids, draft, target, N, K).tolist()

    return decode


def torch_gpt2(folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, logging

    files = open_model(folder)
    hparams, tensors = files.hparams, files.tensors()
    logging.set_verbosity_error()
    torch.set_num_threads(THREADS)
    sizes = {name: hparams[name] for name in ("n_embd", "n_layer", "n_head")}
    with torch.device("meta"):
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=hparams["n_vocab"], n_positions=hparams["n_ctx"], **sizes)
        )
    state = {}
    for name in model.state_dict():
        tensor = tensors[openai_name(name.replace("lm_head", "wte"))]
        state[name] = torch.from_numpy(tensor.astype(np.float32))
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    return model.eval()


def their_pass(folder):
    import torch
    from transformers import DynamicCache

    model, cache, ids = torch_gpt2(folder), DynamicCache(), ids_for(folder)

    @torch.inference_mode()
    def forward(n, n_new):
        if (n_surplus := cache.get_seq_length() - (n - n_new)) > 0:
            cache.crop(-n_surplus)
        new = torch.from_numpy(ids[cache.get_seq_length() : n])[None]
        return (
            model(new, cache=cache, logits_to_keep=1 if n_new == n else n_new)
            .logits[0, :, :5]
            .tolist()
        )

    return forward


def their_loop(target, draft):
    import torch

    target, draft = torch_gpt2(target), torch_gpt2(draft)
    constant = dict(num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0)

    def decode(ids, K):
        draft.generation_config.update(num_assistant_tokens=K, **constant)
        ids = torch.tensor([ids])
        given = {"assistant_model": draft} if K else {}
        out = target.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=N, eos_token_id=None,
            pad_token_id=0, **given,
        )  # fmt: skip
        return out[0].tolist()

    return decode


# ---- Taking turns ----


def compare_passes(directory):
    """A row of the table: our time divided by theirs."""
    hparams = open_model(directory).hparams
    n_prompt = min(512, hparams["n_ctx"] - 9)
    cases = {f"{n} row{'s' * (n > 1)}": (PASSES, CONTEXT + n, n) for n in (1, 5)}
    cases[f"prompt of {n_prompt}"] = 1, n_prompt, n_prompt
    cells = []
    with (
        Turns("studies.times.peers:our_pass", directory) as us,
        Turns("studies.times.peers:their_pass", directory) as them,
    ):
        for case in cases.values():
            turns = []
            for _ in range((3 if hparams["n_layer"] > 12 and case[0] == 1 else TURNS) + 1):
                (ours, logits), (theirs, others) = us.ask(*case), them.ask(*case)
                assert np.abs(np.subtract(logits, others)).max() < 1e-2, (
                    "the engines' logits differ"
                )
                turns.append([ours, theirs])
            t = np.array(turns[1:])  # the first turn is slower
            ours, theirs = np.median(t * 1e3, axis=0)
            cells.append(f"{np.median(t[:, 0] / t[:, 1]):.2f} ({ours:.3g} / {theirs:.3g} ms)")
    return table(["ours / theirs", *cases], [[directory, *cells]], n_left=9)


def compare_texts():
    """Tokens per second of both loops. All four texts have to be the same."""
    ids = get_encoder(PAIR[0], "").encode(PROMPT)
    with (
        Turns("studies.times.peers:our_loop", *PAIR) as us,
        Turns("studies.times.peers:their_loop", *PAIR) as them,
    ):
        seconds, texts = [], set()
        for _ in range(TURNS + 1):
            found = [engine.ask(1, ids, k) for engine in (us, them) for k in (0, K)]
            seconds.append([taken for taken, _ in found])
            texts |= {tuple(text) for _, text in found}
    assert len(texts) == 1, "the texts differ"
    seconds = np.array(seconds[1:]).reshape(TURNS, 2, 2)
    speed, gain = (
        np.median(N / seconds, axis=0),
        np.median(seconds[..., 0] / seconds[..., 1], axis=0),
    )
    rows = [
        [name, *map(round, speed[i].tolist()), float(gain[i])]
        for i, name in enumerate(("ours", "transformers"))
    ]
    return table(["tokens per second", "plain", f"K = {K}", "speedup"], rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directories",
        nargs="*",
        metavar="DIR",
        help="the directory of a model, such as models/target",
    )
    args = parser.parse_args()
    if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        advice = "pip install -r studies/times/requirements-peers.txt"
        raise UserError(f"this needs torch and transformers: {advice}")
    for directory in args.directories:
        print(compare_passes(directory), "\n")
    if not args.directories:
        print(compare_texts())


if __name__ == "__main__":
    report(main, "python -m studies.times.peers")
